"""Answers to questions about things: yes, no, or that it is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from ludic_gym.envs.games.things import attributes, things

Answer = Literal["yes", "no", "I don't know"]
# Longer questions are not read.
LONGEST = 200
# Words that change nothing in a question: "Would you say that it is usually an animal?"
_FILLERS = frozenset(
    (
        "it", "is", "are", "was", "does", "do", "did", "can", "could", "would", "will",
        "has", "have", "had", "be", "that", "this", "thing", "something", "object", "item",
        "one", "you", "i", "we", "people", "person", "someone", "somebody", "they",
        "usually", "normally", "typically", "often", "mostly", "generally", "mainly",
        "commonly", "ever", "kind", "type", "sort", "of", "used", "use", "made", "make",
        "found", "find", "kept", "keep", "to", "for", "in", "on", "at", "with", "by",
        "from", "as", "any", "some", "which", "considered", "say", "think", "called", "and",
        "or", "also", "please", "so", "then", "well", "ok", "okay", "right", "really",
        "actually", "color", "colour", "shape", "able", "primarily", "largely", "form",
        "mode", "thinking", "re", "average", "adult", "native", "touch", "enough",
        "require", "operate", "work",
    )
)  # fmt: skip
_ARTICLES = frozenset(("a", "an", "the", "my", "your", "its", "their", "most"))
_OPENINGS = frozenset(
    ("is", "are", "was", "does", "do", "did", "can", "could", "would", "will", "has", "have")
)
_WORD = re.compile(r"[a-z0-9]+")


class Term(NamedTuple):
    """A part of a question: whether a fact, or the name itself, is true of the thing.

    name: of an attribute, or of a thing.
    """

    name: str
    is_thing: bool = False
    wanted: bool = True

    def holds(self, thing: str) -> bool:
        """Whether it is true of the thing."""
        true = thing == self.name if self.is_thing else self.name in things()[thing]
        return true == self.wanted


class Query(NamedTuple):
    """What is asked: whether all of the terms hold, or any of them."""

    terms: tuple[Term, ...]
    is_any: bool

    def holds(self, thing: str) -> bool:
        """Whether it is true of the thing."""
        return (any if self.is_any else all)(term.holds(thing) for term in self.terms)


def answer(question: str, thing: str) -> Answer:
    """The true answer about the thing; "I don't know" where not every word is understood."""
    query = understood(question)
    if query is None:
        return "I don't know"
    return "yes" if query.holds(thing) else "no"


@lru_cache(maxsize=2**14)
def understood(question: str) -> Query | None:
    """What a question asks that can be answered with yes or no; None if that is not clear.

    Understood are questions on the attributes of `attributes` and on what the thing is, joined by
    "and" or "or". Negations are not, nor is a word that is not known: it might change the answer.
    """
    tokens = tokens_of(question[: LONGEST + 1]) if len(question) <= LONGEST else ()
    if not tokens or tokens[0] not in _OPENINGS:
        return None
    found = tuple(_terms(tokens))
    if not found or None in found or {"and", "or"} <= set(tokens):
        return None
    terms = tuple(dict.fromkeys(term for term in found if term is not None))
    return Query(terms, "or" in tokens)


def _terms(tokens: tuple[str, ...]) -> Iterator[Term | None]:
    """The terms in the tokens, the longest phrases first; None for a word that is not known."""
    position, table = 0, phrases()
    while position < len(tokens):
        ends = range(min(position + _longest(), len(tokens)), position, -1)
        end = next((end for end in ends if tokens[position:end] in table), 0)
        if end:
            yield table[tokens[position:end]]
        elif tokens[position] not in _FILLERS:
            yield None
        position = end or position + 1


def tokens_of(text: str) -> tuple[str, ...]:
    """The words in their singular, without articles."""
    said = _WORD.findall(text.casefold().replace("'s", ""))
    return tuple(singular(word) for word in said if word not in _ARTICLES)


def singular(word: str) -> str:
    """The word without the last letter of a plural or a verb: "legs", "eats", not "this"."""
    if len(word) <= 3 or word in _FILLERS or not word.endswith("s") or word.endswith("ss"):
        return word
    return word[:-1]


@cache
def phrases() -> Mapping[tuple[str, ...], Term]:
    """What every phrase that is understood asks for."""
    table = {tokens_of(name): Term(name, is_thing=True) for name in things()}
    for name, attribute in attributes().items():
        for phrase in attribute.phrases:
            wanted = not phrase.startswith("!")
            table[tokens_of(phrase)] = Term(name, wanted=wanted)
    return table


@cache
def _longest() -> int:
    return max(map(len, phrases()))
