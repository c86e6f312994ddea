"""What graders take and return."""

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


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is graded: a question, the reply to it, and the truth, "" where nobody knows it."""

    question: str
    answer: str
    truth: str = ""
