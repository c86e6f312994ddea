"""Repeated jobs, in the manner of cron."""

from timetable.fields import parse_field
from timetable.plan import Plan

__all__ = ["Plan", "parse_field"]
