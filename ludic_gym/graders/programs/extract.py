"""The program in a reply."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+.-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)
_THOUGHT = "</think>"


def program_in(text: str, languages: tuple[str, ...] = ("python", "py", "python3")) -> str:
    """The last fenced block in one of the languages, else the last fenced block, else all of it.

    What comes before the end of a thought (`</think>`) is not looked at.
    """
    said = text.rpartition(_THOUGHT)[2]
    blocks = _FENCE.findall(said)
    fitting = [code for language, code in blocks if language.lower() in languages]
    code: str = (fitting or [code for _, code in blocks] or [said])[-1]
    return code.strip("\n")


def is_fenced(text: str) -> bool:
    """Whether there is a fenced block after the thought."""
    return _FENCE.search(text.rpartition(_THOUGHT)[2]) is not None
