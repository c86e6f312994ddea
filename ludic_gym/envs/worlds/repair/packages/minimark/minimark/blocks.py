"""Split a text into blocks."""


def blocks(text):
    """Pairs (kind, content) of the blocks of a text.

    Kinds: "h1" to "h6" for lines with that many "#" and a blank, "code" between lines of three
    backticks, "list" for lines with "- ", "quote" for lines with "> ", and "p". Contents are texts,
    of a list the list of its items. Blank lines end a block other than code.
    """
    found = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = at + 1
            while end < len(lines) and lines[end] != "```":
                end += 1
            found.append(("code", "\n".join(lines[at + 1 : end])))
            at = end + 1
        elif heading(line):
            found.append((f"h{heading(line)}", line.strip("#").strip()))
            at += 1
        else:
            end = at
            while end < len(lines) and kind(lines[end]) == kind(line):
                end += 1
            found.append(joined(kind(line), lines[at:end]))
            at = end
    return found


def heading(line):
    """The level of a heading, 0 for other lines."""
    level = len(line) - len(line.lstrip("#"))
    return level if 1 <= level <= 6 and line[level : level + 1] == " " else 0


def kind(line):
    """The kind of a line on its own."""
    if not line.strip():
        return "blank"
    if line.startswith("```"):
        return "code"
    if heading(line):
        return "heading"
    return {"- ": "list", "> ": "quote"}.get(line[:2], "p")


def joined(name, lines):
    """The block that lines of one kind make."""
    if name == "list":
        return name, [line[2:].strip() for line in lines]
    if name == "quote":
        return name, " ".join(line[2:].strip() for line in lines)
    return name, " ".join(line.strip() for line in lines)
