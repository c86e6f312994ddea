"""Grades texts against texts: a choice, the same words, or most of the words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, extract

_CHOICE = re.compile(r"\(?([A-Za-z])\)?(?:[.:)](?:\s.*)?)?", re.DOTALL)
_HEDGES = re.compile(r"[,;/|\n]|\b(?:or|and|not|no|nor|neither|either|maybe|n't)\b")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# The share of words that makes an answer correct.
ENOUGH = 0.8


def grade_choice(text: str, truth: str) -> Grade:
    """Whether the answer in `text` is the letter `truth`: "B", "(b)", "B." or "B: Paris".

    Raises DataError if the truth is not one capital letter.
    """
    if not (len(truth) == 1 and "A" <= truth <= "Z"):
        raise DataError(f"the truth must be a letter from A to Z, got {truth!r}")
    answer, rule = extract(text)
    match = _CHOICE.fullmatch(answer.strip("*_`$. ")) if answer else None
    return Grade(match is not None and match[1].upper() == truth, answer, rule)


def grade_exact(text: str, truth: str) -> Grade:
    """Whether the answer in `text` is one of the accepted ones, the lines of `truth`.

    Case, accents' form, punctuation, articles and white space do not matter (Rajpurkar et al. 2016,
    arXiv:1606.05250).
    """
    answer, rule = extract(text)
    correct = answer is not None and normalised(answer) in map(normalised, _accepted(truth))
    return Grade(correct, answer, rule)


def grade_f1(text: str, truth: str) -> Grade:
    """Whether the answer in `text` shares enough words with an accepted one: F1 of 0.8 or more.

    An answer with a comma, a slash, "or", "not" and the like, of which the accepted one has none,
    may say two things, or the opposite: it is not correct.
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    said = set(_HEDGES.findall(answer.casefold()))
    close = (
        word_f1(answer, right) >= ENOUGH and said <= set(_HEDGES.findall(right.casefold()))
        for right in _accepted(truth)
    )
    return Grade(any(close), answer, rule)


def word_f1(answer: str, truth: str) -> float:
    """The harmonic mean of precision and recall of the answer's words, 0 to 1."""
    said, right = Counter(normalised(answer).split()), Counter(normalised(truth).split())
    return 2 * (said & right).total() / max(said.total() + right.total(), 1)


def normalised(text: str) -> str:
    """The words in lower case, without articles and punctuation, one blank between them."""
    text = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _accepted(truth: str) -> list[str]:
    """The accepted answers; each must have a word, or the empty answer would be right."""
    answers = truth.splitlines()
    if not answers or not all(map(normalised, answers)):
        raise DataError(f"every accepted answer needs a word, got {truth!r}")
    return answers
