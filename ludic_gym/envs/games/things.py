"""A table of things with what is true of them, and the words in which one asks about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "data"
THINGS, ATTRIBUTES = DATA / "twenty_questions.txt", DATA / "twenty_questions_attributes.txt"


class Attribute(NamedTuple):
    """A question about a thing, and the phrases by which others ask the same.

    A phrase that begins with "!" asks for the opposite.
    """

    question: str
    phrases: tuple[str, ...]


# What follows from what.
IMPLIES: Mapping[str, tuple[str, ...]] = {
    "mammal": ("vertebrate", "warm_blooded"),
    "bird": ("vertebrate", "warm_blooded", "wings"),
    "fish": ("vertebrate", "water"),
    "insect": ("animal", "hand", "wild"),
    "reptile": ("vertebrate",),
    "vertebrate": ("animal",),
    "animal": ("alive", "natural"),
    "plant": ("alive", "natural", "outdoors"),
    "fruit": ("food", "natural"),
    "vegetable": ("food", "natural"),
    "food": ("eaten",),
    "furniture": ("indoors",),
    "kitchen": ("indoors",),
    "bathroom": ("indoors",),
    "device": ("electric", "indoors"),
    "clothing": ("worn",),
    "vehicle": ("ridden", "outdoors"),
    "building": ("big", "outdoors"),
    "wild": ("outdoors",),
    "farm": ("outdoors",),
    "sky": ("outdoors",),
    "sea": ("water",),
}


@cache
def things() -> Mapping[str, frozenset[str]]:
    """Every thing by its name, with all that is true of it."""
    return {name: facts_from(said.split()) for name, said in _table(THINGS)}


@cache
def attributes() -> Mapping[str, Attribute]:
    """What can be asked, by name."""
    table = {}
    for name, said in _table(ATTRIBUTES):
        question, mark, phrases = said.partition("?")
        table[name] = Attribute(question + mark, tuple(map(str.strip, phrases.split("|"))))
    return table


def _table(path: Path) -> Iterator[tuple[str, str]]:
    """The names, and what is said of them, one a line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, said = line.partition(": ")
        if not line.startswith("#"):
            yield name, said


def facts_from(said: list[str]) -> frozenset[str]:
    """What is said, and what follows from it."""
    facts: set[str] = set()
    while said:
        fact = said.pop()
        facts.add(fact)
        said += IMPLIES.get(fact, ())
    if "natural" not in facts:
        facts.add("made")
    if "animal" in facts and "mammal" not in facts:
        facts.add("eggs")
    if "animal" in facts and facts & {"pet", "farm"}:
        facts.add("domestic")
    return frozenset(facts - {"natural"})
