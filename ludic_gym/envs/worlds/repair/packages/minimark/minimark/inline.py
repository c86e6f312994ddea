"""Marks within a line."""

import re

from minimark.escaping import escape

MARKS = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*(.+?)\*|\[([^\]]*)\]\(([^)\s]*)\)")
SAFE = ("http://", "https://", "mailto:", "/", "#")


def inline(text):
    """HTML of a line: `code`, **strong**, *emphasis* and [links](url); all else is escaped.

    Marks may be nested, but not in code. A link to anything but a safe address is only its text.
    """
    parts = []
    end = 0
    for mark in MARKS.finditer(text):
        parts.append(escape(text[end : mark.start()]))
        code, strong, emphasis, label, url = mark.groups()
        if code is not None:
            parts.append(f"<code>{escape(code)}</code>")
        elif strong is not None:
            parts.append(f"<strong>{inline(strong)}</strong>")
        elif emphasis is not None:
            parts.append(f"<em>{inline(emphasis)}</em>")
        elif url.lower().startswith(SAFE):
            parts.append(f'<a href="{escape(url)}">{inline(label)}</a>')
        else:
            parts.append(inline(label))
        end = mark.end()
    parts.append(escape(text[end:]))
    return "".join(parts)
