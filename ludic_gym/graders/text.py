"""Graders of texts: a choice, equal words, or mostly equal words."""

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
    r"""Grade an answer as correct if it is the letter `truth`.

    Raises DataError if the truth is not one capital letter.

    >>> replies = "B", "(b)", "B.", "B: Paris", r"\boxed{B}", "B or C"
    >>> [grade_choice(reply, "B").correct for reply in replies]
    [True, True, True, True, True, False]
    """
    if not (len(truth) == 1 and "A" <= truth <= "Z"):
        raise DataError(f"the truth must be a letter from A to Z, got {truth!r}")
    answer, rule = extract(text)
    # The whole answer: "B. Paris" is a choice with its text, "Both" is none.
    match = _CHOICE.fullmatch(answer.strip("*_`$. ")) if answer else None
    return Grade(match is not None and match[1].upper() == truth, answer, rule)


def grade_exact(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if it is an accepted one, that is, a line of `truth`.

    Case, Unicode form, punctuation, articles and white space are ignored (Rajpurkar et al. 2016,
    arXiv:1606.05250). Raises DataError if the truth has no line, or one without a letter or digit.

    >>> grade_exact("The answer is the U.S.A.", "USA\nUnited States").correct
    True
    >>> grade_exact("USA, I think", "USA\nUnited States").correct
    False
    """
    answer, rule = extract(text)
    correct = answer is not None and normalised(answer) in map(normalised, _accepted(truth))
    return Grade(correct, answer, rule)


def grade_f1(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if its words have an F1 of 0.8 or more with an accepted one.

    An answer with a comma, a slash, "or", "not" or similar, which the accepted one lacks, may mean
    two things, or the opposite. It is not correct. Raises DataError as `grade_exact` does.

    >>> grade_f1("the old Eiffel Tower", "Eiffel Tower\nTour Eiffel").correct  # F1 is 0.8
    True
    >>> grade_f1("not the Eiffel Tower", "Eiffel Tower").correct
    False
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    # "Paris, Lyon" has a high F1 with "Paris", but leaves the choice to the grader.
    hedges = set(_HEDGES.findall(answer.casefold()))
    close = (
        word_f1(answer, right) >= ENOUGH and hedges <= set(_HEDGES.findall(right.casefold()))
        for right in _accepted(truth)
    )
    return Grade(any(close), answer, rule)


def word_f1(answer: str, truth: str) -> float:
    """The harmonic mean of precision and recall of the answer's words, 0 to 1.

    >>> word_f1("big red house", "red house")  # precision 2/3, recall 1
    0.8
    """
    given, right = Counter(normalised(answer).split()), Counter(normalised(truth).split())
    return 2 * (given & right).total() / max(given.total() + right.total(), 1)


def normalised(text: str) -> str:
    """The words in lower case, without articles and punctuation, one blank between them.

    >>> normalised("The  Who's, café!")
    'whos café'
    """
    # NFKC first: full-width letters and ligatures have a case and a category only after it.
    text = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _accepted(truth: str) -> list[str]:
    """The lines of a truth. Raises DataError for one without a letter or digit: "" would match."""
    lines = truth.splitlines()
    if not lines or not all(map(normalised, lines)):
        raise DataError(f"every accepted answer needs a letter or digit, got {truth!r}")
    return lines
