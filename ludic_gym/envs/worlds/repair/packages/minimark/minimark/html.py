"""A whole text as HTML."""

import re

from minimark.blocks import blocks
from minimark.escaping import escape
from minimark.inline import inline


def slug(title, taken=()):
    """An id for a title: lower case, words joined by "-"; a number is added if it is taken."""
    base = "-".join(re.findall(r"[a-z0-9]+", title.lower())) or "section"
    name, number = base, 2
    while name in taken:
        name = f"{base}-{number}"
        number += 1
    return name


def to_html(text):
    """HTML of the text, one block per line; headings have ids."""
    lines = []
    taken = set()
    for kind, content in blocks(text):
        if kind == "code":
            lines.append(f"<pre>{escape(content)}</pre>")
        elif kind == "list":
            items = "".join(f"<li>{inline(item)}</li>" for item in content)
            lines.append(f"<ul>{items}</ul>")
        elif kind == "quote":
            lines.append(f"<blockquote>{inline(content)}</blockquote>")
        elif kind == "p":
            lines.append(f"<p>{inline(content)}</p>")
        else:
            name = slug(content, taken)
            taken.add(name)
            lines.append(f'<{kind} id="{name}">{inline(content)}</{kind}>')
    return "\n".join(lines)
