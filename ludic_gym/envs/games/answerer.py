"""Answers to yes-or-no questions about things: a parser of questions over a table of facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from ludic_gym.data.row import words
from ludic_gym.envs.games.things import DATA, attributes, things

Answer = Literal["yes", "no", "I don't know"]
FILLERS = DATA / "twenty_questions_fillers.txt"
# Longer questions are not parsed.
LONGEST = 200
_ARTICLES = frozenset(("a", "an", "the", "my", "your", "its", "their", "most"))
_OPENINGS = frozenset(
    ("is", "are", "was", "does", "do", "did", "can", "could", "would", "will", "has", "have")
)
_WORD = re.compile(r"[a-z0-9]+")


class Term(NamedTuple):
    """One condition of a question.

    name: an attribute, or a thing if `is_thing`.
    wanted: False for the negation of the condition.
    """

    name: str
    is_thing: bool = False
    wanted: bool = True

    def holds(self, thing: str) -> bool:
        """True if the thing meets the condition."""
        true = thing == self.name if self.is_thing else self.name in things()[thing]
        return true == self.wanted


class Query(NamedTuple):
    """A parsed question: the conjunction of its terms, or their disjunction if `is_any`."""

    terms: tuple[Term, ...]
    is_any: bool

    def holds(self, thing: str) -> bool:
        """True if the answer for the thing is yes."""
        return (any if self.is_any else all)(term.holds(thing) for term in self.terms)


def answer(question: str, thing: str) -> Answer:
    """The true answer for the thing; "I don't know" if any word is unknown."""
    query = understood(question)
    if query is None:
        return "I don't know"
    return "yes" if query.holds(thing) else "no"


@lru_cache(maxsize=2**14)
def understood(question: str) -> Query | None:
    """The parsed question; None if it is not understood.

    The terms are attributes of `attributes()` and names of things, joined by "and" or "or".
    Negations and unknown words are rejected, because they may change the answer.
    """
    tokens = tokens_of(question[: LONGEST + 1]) if len(question) <= LONGEST else ()
    if not tokens or tokens[0] not in _OPENINGS:
        return None
    found = tuple(_terms(tokens))
    if not found or None in found or {"and", "or"} <= set(tokens):
        return None
    # Other wordings of one attribute in a question are one condition.
    terms = tuple(dict.fromkeys(term for term in found if term is not None))
    return Query(terms, "or" in tokens)


def _terms(tokens: tuple[str, ...]) -> Iterator[Term | None]:
    """The terms in the tokens, by longest match; None for an unknown word."""
    position, table = 0, phrases()
    while position < len(tokens):
        # The longest phrase first, because a phrase may begin with another one.
        ends = range(min(position + _longest(), len(tokens)), position, -1)
        end = next((end for end in ends if tokens[position:end] in table), 0)
        # Unknown words are not skipped: "is it not an animal" must not be read as "an animal".
        if end:
            yield table[tokens[position:end]]
        elif tokens[position] not in fillers():
            yield None
        position = end or position + 1


def tokens_of(text: str) -> tuple[str, ...]:
    """The words in the singular, without articles."""
    found = _WORD.findall(text.casefold().replace("'s", ""))
    return tuple(singular(word) for word in found if word not in _ARTICLES)


def singular(word: str) -> str:
    """The word without the final s of a plural or a verb ("legs", "eats", but not "this")."""
    if len(word) <= 3 or word in fillers() or not word.endswith("s") or word.endswith("ss"):
        return word
    return word[:-1]


@cache
def fillers() -> frozenset[str]:
    """Words without effect on the answer: "Would you say that it is usually an animal?"."""
    return frozenset(words(FILLERS))


@cache
def phrases() -> Mapping[tuple[str, ...], Term]:
    """The term of each known phrase."""
    table = {tokens_of(name): Term(name, is_thing=True) for name in things()}
    for name, attribute in attributes().items():
        for phrase in attribute.phrases:
            wanted = not phrase.startswith("!")
            table[tokens_of(phrase)] = Term(name, wanted=wanted)
    return table


@cache
def _longest() -> int:
    return max(map(len, phrases()))
