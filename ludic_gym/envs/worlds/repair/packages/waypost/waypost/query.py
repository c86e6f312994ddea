"""Query strings."""

from urllib.parse import quote, unquote


def parse_query(text):
    """{key: [values]} of "a=1&b=2&a=3"; a key without "=" has the value "". "+" is a blank."""
    found = {}
    for part in text.split("&"):
        if not part:
            continue
        key, _, value = part.partition("=")
        found.setdefault(decoded(key), []).append(decoded(value))
    return found


def write_query(values):
    """The query of {key: value or list of values}, sorted by key; None is left out."""
    parts = []
    for key in sorted(values):
        value = values[key]
        several = value if isinstance(value, list) else [value]
        parts += [
            f"{quote(key, safe='')}={quote(str(v), safe='')}" for v in several if v is not None
        ]
    return "&".join(parts)


def decoded(text):
    """The text without escapes."""
    return unquote(text.replace("+", " "))
