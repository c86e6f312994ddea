"""Filters of values: {{ name|upper }} or {{ items|join:", " }}."""

FILTERS = {
    "upper": lambda value: str(value).upper(),
    "title": lambda value: str(value).title(),
    "length": len,
    "join": lambda value, sign="": sign.join(map(str, value)),
    "default": lambda value, other="": other if value in (None, "") else value,
    "first": lambda value: value[0] if value else "",
}


def register(name, function):
    """Add a filter. Raises ValueError for a name that is taken."""
    if name in FILTERS:
        raise ValueError(f"filter {name!r} exists")
    FILTERS[name] = function


def apply(value, text):
    """The value after a filter, such as "upper" or 'join:", "'."""
    name, colon, argument = text.strip().partition(":")
    if name not in FILTERS:
        raise KeyError(f"no filter {name!r}")
    if not colon:
        return FILTERS[name](value)
    return FILTERS[name](value, argument.strip().strip("\"'"))
