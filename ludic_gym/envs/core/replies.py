"""Readers of short replies, and short texts that answer or pass them on."""

from __future__ import annotations

from collections.abc import Sequence

# Marks that models put around a short reply: Markdown, quotes, brackets.
_AROUND = " \t\r\n*_`\"'(["
_AFTER = _AROUND + ")].,;:!"
# A feedback lists the legal actions if there are at most so many.
_FEW = 12


def said(text: str) -> str:
    """The reply after its thought, that is, after the last `</think>`; all of it without one.

    >>> said("<think>B1 or B2?</think> B2"), said(" B2")
    ('B2', ' B2')
    """
    _, closed, reply = text.rpartition("</think>")
    return reply.strip() if closed else text


def undecorated(text: str) -> str:
    """The text without quotes, Markdown and brackets around it, and punctuation at its end.

    >>> [undecorated(text) for text in ("**B2**", "b)", '"42."', "-7", ".5")]
    ['B2', 'b', '42', '-7', '.5']
    """
    return text.lstrip(_AROUND).rstrip(_AFTER)


def refusal(legal: Sequence[str], reply_form: str = "") -> str:
    """Feedback on an illegal action: the legal ones if they are few, else the form of a reply."""
    if 0 < len(legal) <= _FEW:
        return f"That is not a legal action. Legal actions: {', '.join(legal)}."
    form = f" Reply with just {reply_form}." if reply_form else ""
    return f"That is not a legal action.{form}"


def one_line(text: str, longest: int) -> str:
    """The text on one line of at most `longest` characters, without unprintable ones.

    Use it for messages between players, which must not look like lines of the environment.
    """
    # The text is cut first: a message of megabytes must not cost more than a short one.
    printed = "".join(c if c.isprintable() else " " for c in text[: 10 * longest])
    return " ".join(printed.split())[:longest]
