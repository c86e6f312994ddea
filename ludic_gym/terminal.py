"""Texts for a terminal: untrusted text made printable, suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_REPLACEMENT = 0xFFFD
# Control characters become Unicode's pictures of them; tabs and line ends stay.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_INVISIBLE = (
    *range(0x80, 0xA0),  # the other control characters
    *(0x2028, 0x2029),  # separators that some programs take for line ends
    *(0x200E, 0x200F, 0x061C),  # marks of direction
    *range(0x202A, 0x202F),  # embeddings and overrides of direction
    *range(0x2066, 0x206A),  # isolates of direction
    *range(0xD800, 0xE000),  # lone surrogates, which cannot be encoded
)
_VISIBLE = dict.fromkeys(_INVISIBLE, _REPLACEMENT) | _PICTURES


def printable(text: str) -> str:
    r"""The text with all invisible characters replaced, except for spaces, tabs and line ends.

    >>> printable("red \x1b[31m")
    'red ␛[31m'
    """
    return text.translate(_VISIBLE)


def suggestion(name: str, names: Iterable[str], *, otherwise: str = "there are") -> str:
    """A question for the nearest of the known names, or else all of them.

    otherwise: words before the list of all names.

    >>> suggestion("Lits", ["list", "play"]), suggestion("x", ["list", "play"])
    ("did you mean 'list'?", 'there are: list, play')
    """
    near = nearest(name, names)
    return f"did you mean {near!r}?" if near else f"{otherwise}: {', '.join(names)}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of the known names, in any case of the letters; None if none is similar."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None
