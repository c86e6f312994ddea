"""Untrusted text made safe to print: it cannot control a terminal or reverse the text order."""

from __future__ import annotations

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
