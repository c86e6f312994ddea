"""Quantities with units."""

from measures.quantity import Quantity, parse
from measures.text import human_bytes, human_time
from measures.units import UnitError, convert

__all__ = ["Quantity", "UnitError", "convert", "human_bytes", "human_time", "parse"]
