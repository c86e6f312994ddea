"""A table of things and their attributes, and the phrases of questions about attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data"
THINGS, ATTRIBUTES = DATA / "twenty_questions.txt", DATA / "twenty_questions_attributes.txt"
IMPLIED = DATA / "twenty_questions_implied.txt"


class Attribute(NamedTuple):
    """A question about a thing, and the phrases that other wordings of it contain.

    A phrase that begins with "!" means the opposite.
    """

    question: str
    phrases: tuple[str, ...]


@cache
def things() -> Mapping[str, frozenset[str]]:
    """The attributes of each thing, by name."""
    return {name: facts_from(facts.split()) for name, facts in _table(THINGS)}


@cache
def attributes() -> Mapping[str, Attribute]:
    """All attributes, by name."""
    table = {}
    for name, line in _table(ATTRIBUTES):
        question, mark, phrases = line.partition("?")
        table[name] = Attribute(question + mark, tuple(map(str.strip, phrases.split("|"))))
    return table


@cache
def implied() -> Mapping[str, tuple[str, ...]]:
    """The attributes that follow from an attribute, by name."""
    return {name: tuple(facts.split()) for name, facts in _table(IMPLIED)}


def _table(path: Path) -> Iterator[tuple[str, str]]:
    """The names in a file, each with the rest of its line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(": ")
        if not line.startswith("#"):
            yield name, rest


def facts_from(given: list[str]) -> frozenset[str]:
    """The given attributes and all that they imply; empties the list."""
    facts: set[str] = set()
    while given:
        fact = given.pop()
        facts.add(fact)
        given += implied().get(fact, ())
    # The table marks what is natural; all else is made by people.
    if "natural" not in facts:
        facts.add("made")
    if "animal" in facts and "mammal" not in facts:
        facts.add("eggs")
    if "animal" in facts and facts & {"pet", "farm"}:
        facts.add("domestic")
    # Only the rules above need it: questions have "made" and its opposite.
    return frozenset(facts - {"natural"})
