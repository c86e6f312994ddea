"""Units and their conversion."""

UNITS = {
    "m": ("length", 1.0),
    "km": ("length", 1000.0),
    "cm": ("length", 0.01),
    "in": ("length", 0.0254),
    "g": ("mass", 1.0),
    "kg": ("mass", 1000.0),
    "t": ("mass", 1000000.0),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "h": ("time", 3600.0),
}
# Degrees: value in kelvin = (value + offset) * factor.
DEGREES = {"K": (0.0, 1.0), "C": (273.15, 1.0), "F": (459.67, 5 / 9)}


class UnitError(ValueError):
    """Units that are unknown or do not fit together."""


def kind(unit):
    """The kind of a unit, such as "length"."""
    if unit in DEGREES:
        return "temperature"
    if unit not in UNITS:
        raise UnitError(f"unknown unit {unit!r}")
    return UNITS[unit][0]


def convert(value, unit, target):
    """The value in another unit, rounded to six digits."""
    if kind(unit) != kind(target):
        raise UnitError(f"{unit} is no {kind(target)}")
    if unit in DEGREES:
        offset, factor = DEGREES[unit]
        kelvin = (value + offset) * factor
        if kelvin < 0:
            raise UnitError(f"{value} {unit} is below absolute zero")
        offset, factor = DEGREES[target]
        return round(kelvin / factor - offset, 6)
    return round(value * UNITS[unit][1] / UNITS[target][1], 6)
