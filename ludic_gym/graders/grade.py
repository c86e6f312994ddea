"""What every grader returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict on one answer.

    answer: what was taken for the answer, or None if the text holds none.
    rule: how it was found, in the words of the grader.
    """

    correct: bool
    answer: str | None
    rule: str
