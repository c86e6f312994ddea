"""Fields of a plan: numbers, ranges, steps and lists."""

NAMES = {
    "mon": 0,
    "tue": 1,
    "wed": 2,
    "thu": 3,
    "fri": 4,
    "sat": 5,
    "sun": 6,
}


def number(text, low, high):
    """The number or name of a weekday. Raises ValueError outside of low to high."""
    value = NAMES.get(text.lower())
    if value is None:
        if not text.isdigit():
            raise ValueError(f"not a number: {text!r}")
        value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is not in {low}-{high}")
    return value


def parse_field(text, low, high):
    """The sorted numbers of a field, such as "*", "5", "1-5", "*/15", "1-9/2" or "1,3,8-10".

    A range whose end is before its start continues at `low`: "22-2" of hours is 22, 23, 0, 1, 2.
    """
    found = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        size = 1
        if step:
            size = number(step, 1, high)
        if span == "*":
            values = list(range(low, high + 1))
        elif "-" in span:
            first, _, last = span.partition("-")
            start, stop = number(first, low, high), number(last, low, high)
            if start <= stop:
                values = list(range(start, stop + 1))
            else:
                values = list(range(start, high + 1)) + list(range(low, stop + 1))
        else:
            values = [number(span, low, high)]
        found.update(values[::size])
    return sorted(found)
