"""Break texts into lines."""


def wrap(text, width):
    """Lines of at most `width` characters; only a longer word is broken."""
    lines = []
    line = ""
    for word in text.split():
        while len(word) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(word[:width])
            word = word[width:]
        if not word:
            continue
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines


def indent(lines, prefix, skip_first=False):
    """The lines with a prefix; empty lines stay empty, and the first may be left as it is."""
    found = []
    for number, line in enumerate(lines):
        if not line or (skip_first and number == 0):
            found.append(line)
        else:
            found.append(prefix + line)
    return found


def shorten(text, width, end="..."):
    """The text in at most `width` characters; the end shows that something was left out."""
    if len(text) <= width:
        return text
    if width <= len(end):
        return end[:width]
    return text[: width - len(end)].rstrip() + end


def justify(line, width):
    """The line stretched to `width`: gaps on the left get the blanks that remain."""
    words = line.split()
    if len(words) < 2:
        return line.strip()
    blanks = width - sum(len(word) for word in words)
    gaps = len(words) - 1
    if blanks < gaps:
        return " ".join(words)
    share, rest = divmod(blanks, gaps)
    parts = [words[0]]
    for number, word in enumerate(words[1:]):
        parts.append(" " * (share + (1 if number < rest else 0)))
        parts.append(word)
    return "".join(parts)
