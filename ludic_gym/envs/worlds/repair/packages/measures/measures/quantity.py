"""Numbers with a unit."""

import re

from measures.units import UnitError, convert, kind

FORM = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def parse(text):
    """The quantity of a text such as "1.5 km" or "1h 30min"; parts are added up."""
    parts = FORM.findall(text)
    if not parts or FORM.sub("", text).strip():
        raise UnitError(f"not a quantity: {text!r}")
    total = None
    for number, unit in parts:
        one = Quantity(float(number), unit)
        total = one if total is None else total + one
    return total


class Quantity:
    """A number and its unit; results have the unit of the left side."""

    def __init__(self, value, unit):
        kind(unit)
        self.value = value
        self.unit = unit

    def to(self, unit):
        """The quantity in another unit."""
        return Quantity(convert(self.value, self.unit, unit), unit)

    def __add__(self, other):
        return Quantity(self.value + other.to(self.unit).value, self.unit)

    def __sub__(self, other):
        return Quantity(self.value - other.to(self.unit).value, self.unit)

    def __mul__(self, factor):
        return Quantity(self.value * factor, self.unit)

    def __eq__(self, other):
        if kind(self.unit) != kind(other.unit):
            return False
        return abs(self.value - other.to(self.unit).value) < 1e-6

    def __lt__(self, other):
        return self.value < other.to(self.unit).value

    def __repr__(self):
        return f"{self.value:g} {self.unit}"
