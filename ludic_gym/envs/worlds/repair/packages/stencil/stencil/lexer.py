"""Split a template into tokens."""

import re

TAG = re.compile(r"\{\{(.*?)\}\}|\{%(.*?)%\}|\{#.*?#\}", re.DOTALL)


def tokens(text):
    """Triples (kind, content, line) of a template; comments are left out.

    Kinds: "text", "value" for {{ ... }} and "block" for {% ... %}; lines begin with 1.
    """
    found = []
    end = 0
    line = 1
    for tag in TAG.finditer(text):
        before = text[end : tag.start()]
        if before:
            found.append(("text", before, line))
        line += before.count("\n")
        if tag[1] is not None:
            found.append(("value", tag[1].strip(), line))
        elif tag[2] is not None:
            found.append(("block", tag[2].strip(), line))
        line += tag[0].count("\n")
        end = tag.end()
    if end < len(text):
        found.append(("text", text[end:], line))
    return found
