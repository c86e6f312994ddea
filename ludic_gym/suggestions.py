"""Suggestions for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str], *, otherwise: str = "there are") -> str:
    """A question for the nearest of the known names, or else all of them.

    otherwise: words before the list of all names.

    >>> suggestion("Lits", ["list", "play"]), suggestion("x", ["list", "play"])
    ("did you mean 'list'?", 'there are: list, play')
    """
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"{otherwise}: {', '.join(known)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the known names, in any case of the letters; None if none is similar."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None
