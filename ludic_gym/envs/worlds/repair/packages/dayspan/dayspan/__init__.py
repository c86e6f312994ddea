"""Spans of days, and working days."""

from dayspan.calendar import Calendar
from dayspan.span import Span, gaps, merged

__all__ = ["Calendar", "Span", "gaps", "merged"]
