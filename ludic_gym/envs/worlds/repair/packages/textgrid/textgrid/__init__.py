"""Wrap texts and print tables for a terminal."""

from textgrid.table import render, widths
from textgrid.wrap import indent, justify, shorten, wrap

__all__ = ["indent", "justify", "render", "shorten", "widths", "wrap"]
