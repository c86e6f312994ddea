"""Amounts of money as whole cents."""


def cents(text):
    """Cents of a text such as "1,234.50", "-3" or "0.5". Raises ValueError for other texts."""
    plain = text.strip().replace(",", "")
    negative = plain.startswith("-")
    whole, _, part = plain.lstrip("+-").partition(".")
    if not whole.isdigit() or len(part) > 2 or (part and not part.isdigit()):
        raise ValueError(f"not an amount: {text!r}")
    value = int(whole) * 100 + int(part.ljust(2, "0"))
    return -value if negative else value


def euros(value):
    """The amount with two decimals and commas between thousands."""
    sign = "-" if value < 0 else ""
    whole, part = divmod(abs(value), 100)
    return f"{sign}{whole:,}.{part:02}"


def split(value, parts):
    """The amount in that many shares that differ by at most one cent, larger ones first."""
    if parts < 1:
        raise ValueError(f"parts must be 1 or more, got {parts}")
    share, rest = divmod(value, parts)
    return [share + 1] * rest + [share] * (parts - rest)
