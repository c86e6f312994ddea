"""The phrase that announces an answer: the last one, as an expression finds it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.graders.extract import after_phrase

PHRASE = re.compile(r"\banswer(?: is\b|\s?:|\s?=)", re.IGNORECASE)
PIECES = (
    "answer",
    "Answer",
    "ANſWER",
    "An",
    "swer",
    " is",
    " IS",
    " ıs",
    "İ",
    " ",
    ":",
    "=",
    "\n",
    "s",
    "×",
)


def split_last(text: str) -> str | None:
    *before, rest = PHRASE.split(text)
    return rest if before else None


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_last_phrase_is_that_of_a_split(text: str) -> None:
    assert after_phrase(text) == split_last(text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("the answer is 4", " 4"),
        ("the answer isn't known; my answers: 4", None),
        ("answer: 3. İ say the answer is 4", " 4"),
        ("the anſwer = 4", " 4"),
        ("", None),
    ],
)
def test_words_around_the_phrase_decide(text: str, rest: str | None) -> None:
    assert after_phrase(text) == rest
