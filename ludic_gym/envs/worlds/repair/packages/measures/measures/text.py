"""Quantities for people."""

SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def human_bytes(count):
    """Bytes in the largest unit of which there is at least one, with one decimal from KiB on."""
    if count < 0:
        return "-" + human_bytes(-count)
    if count < 1024:
        return f"{count} B"
    value = float(count)
    size = 0
    while value >= 1024 and size < len(SIZES) - 1:
        value /= 1024
        size += 1
    return f"{value:.1f} {SIZES[size]}"


def human_time(seconds):
    """Whole seconds in days, hours, minutes and seconds without the zeros, such as "1d 2h 5s"."""
    if seconds < 0:
        return "-" + human_time(-seconds)
    parts = []
    for size, name in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{name}")
    return " ".join(parts) or "0s"
