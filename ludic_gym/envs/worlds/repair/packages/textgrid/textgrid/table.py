"""Tables of aligned columns."""

from textgrid.wrap import shorten


def widths(rows, most=20):
    """The width of each column: of its longest cell, but at most `most`."""
    count = max((len(row) for row in rows), default=0)
    found = [0] * count
    for row in rows:
        for column, cell in enumerate(row):
            found[column] = max(found[column], min(len(str(cell)), most))
    return found


def aligned(cell, width):
    """The cell in its column: numbers to the right, all else to the left."""
    text = shorten(str(cell), width)
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return text.rjust(width)
    return text.ljust(width)


def render(rows, header=None, most=20):
    """The table as text, with a rule below the header; missing cells are blank."""
    every = [header, *rows] if header else list(rows)
    sizes = widths(every, most)
    lines = []
    for number, row in enumerate(every):
        cells = list(row) + [""] * (len(sizes) - len(row))
        line = "  ".join(aligned(cell, size) for cell, size in zip(cells, sizes))
        lines.append(line.rstrip())
        if header and number == 0:
            lines.append("  ".join("-" * size for size in sizes))
    return "\n".join(lines)
