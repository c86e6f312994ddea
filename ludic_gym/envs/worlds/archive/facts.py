"""A fictional country: its things, each with a name of its own, and the facts that relate them.

Every relation gives one object to a subject, so that a chain of relations has one answer. The seed
is fixed: the country is the same in every process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

SEED = 2026
# Kind -> number of things.
COUNTS: Mapping[str, int] = MappingProxyType(
    {
        "region": 60,
        "river": 340,
        "town": 2_400,
        "school": 1_000,
        "company": 2_600,
        "person": 9_000,
        "work": 5_600,
    }
)
PROFESSIONS = (
    "architect", "baker", "botanist", "cartographer", "chemist", "composer", "engineer", "farmer",
    "geologist", "glassblower", "historian", "judge", "lawyer", "linguist", "mason", "midwife",
    "miller", "painter", "pharmacist", "photographer", "poet", "printer", "sculptor", "surgeon",
    "surveyor", "tailor", "translator", "watchmaker", "weaver", "zoologist",
)  # fmt: skip
PRODUCTS = (
    "bicycles", "bricks", "buttons", "candles", "carpets", "cheese", "clocks", "cutlery", "dyes",
    "furniture", "gloves", "hats", "ink", "lamps", "locks", "matches", "mirrors", "needles",
    "paper", "pianos", "porcelain", "ropes", "sails", "salt", "scales", "shoes", "soap", "tea",
    "telescopes", "tiles", "toys", "umbrellas", "violins", "wheels",
)  # fmt: skip
FORMS = ("novel", "play", "poem", "opera", "symphony", "travelogue", "comedy", "biography")
_YEARS = range(1500, 2000)
_ONSETS = (
    "b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n",
    "p", "pr", "r", "s", "sk", "st", "t", "tr", "v", "w", "z",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ae", "ei", "ou")
_CODAS = ("", "", "l", "m", "n", "r", "s", "nd", "rk", "st")
_ENDINGS = ("holm", "ford", "wick", "mouth", "dale", "stead", "haven", "by", "ton", "mere")
_ADJECTIVES = (
    "Silver", "Last", "Broken", "Quiet", "Golden", "Hidden", "Distant", "Burning", "Frozen",
    "Hollow", "Crimson", "Patient", "Second", "Wandering", "Unwritten", "Northern", "Sleeping",
    "Borrowed", "Painted", "Early",
)  # fmt: skip
_NOUNS = (
    "Lantern", "Orchard", "Bridge", "Harbour", "Letter", "Mirror", "Winter", "Garden", "Clock",
    "Ferry", "Station", "Meadow", "Violin", "Staircase", "Compass", "Island", "Witness", "Harvest",
    "Shadow", "Window", "Kingdom", "Sparrow", "Chapel", "Voyage",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A person, town, company ... of the country.

    number: index in the country. name: unique, and the title of its passage.
    facts: relation -> number of another thing, or a text such as a year.
    """

    number: int
    kind: str
    name: str
    facts: Mapping[str, int | str]


Things = tuple[Thing, ...]


@cache
def country() -> Things:
    """All things, made once per process."""
    rng = random.Random(SEED)
    numbers = dict[str, range]()
    start = 0
    for kind, count in COUNTS.items():
        numbers[kind] = range(start, start + count)
        start += count
    things = list[Thing]()
    for kind in COUNTS:
        # One generator for all: a change of any list of words changes the whole country.
        names = _names(kind, rng)
        relations = _relations(kind, numbers, rng)
        for number in numbers[kind]:
            facts = {relation: next(values) for relation, values in relations.items()}
            things.append(Thing(number=number, kind=kind, name=next(names), facts=facts))
    return tuple(things)


def _relations(
    kind: str, numbers: Mapping[str, range], rng: random.Random
) -> dict[str, Iterator[int | str]]:
    """Relation -> its objects for all things of the kind, in order."""

    def any_of(other: str) -> Iterator[int | str]:
        return (rng.choice(numbers[other]) for _ in numbers[kind])

    def own(other: str) -> Iterator[int | str]:
        # No two things share one, so that the relation can be asked in both directions.
        yield from rng.sample(numbers[other], len(numbers[kind]))

    def text(choices: Sequence[object]) -> Iterator[int | str]:
        return (str(rng.choice(choices)) for _ in numbers[kind])

    made: dict[str, dict[str, Iterator[int | str]]] = {
        "region": {"capital": own("town"), "governor": own("person")},
        "river": {"source": any_of("region"), "length": text(range(40, 900))},
        "town": {
            "region": any_of("region"),
            "river": any_of("river"),
            "mayor": own("person"),
            "population": text(range(1_100, 99_000)),
        },
        "school": {"town": any_of("town"), "head": own("person"), "opened": text(_YEARS)},
        "company": {
            "town": any_of("town"),
            "founder": own("person"),
            "director": own("person"),
            "founded": text(_YEARS),
            "product": text(PRODUCTS),
        },
        "person": {
            "birthplace": any_of("town"),
            "born": text(_YEARS),
            "school": any_of("school"),
            "employer": any_of("company"),
            "profession": text(PROFESSIONS),
        },
        "work": {
            "author": any_of("person"),
            "publisher": any_of("company"),
            "setting": any_of("town"),
            "published": text(_YEARS),
            "form": text(FORMS),
        },
    }
    return made[kind]


def _names(kind: str, rng: random.Random) -> Iterator[str]:
    """Different names of the kind, without an end."""
    seen = set[str]()
    firsts = [_word(rng, 2) for _ in range(160)]
    while True:
        name = _name(kind, rng, firsts)
        if name not in seen:
            seen.add(name)
            yield name


def _name(kind: str, rng: random.Random, firsts: list[str]) -> str:
    word = _word(rng, 2)
    match kind:
        case "person":
            return f"{rng.choice(firsts)} {word}"
        case "town":
            return word + rng.choice(_ENDINGS)
        case "river":
            return f"River {word}"
        case "region":
            return f"{word} {rng.choice(('Province', 'County', 'Shire'))}"
        case "school":
            return f"{word} {rng.choice(('Academy', 'College', 'Grammar School'))}"
        case "company":
            return f"{word} {rng.choice(('Works', 'and Sons', 'Trading Company', 'Brothers'))}"
    return f"The {rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)} of {word}"


def _word(rng: random.Random, syllables: int) -> str:
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
    ).capitalize()


@cache
def by_object() -> Mapping[tuple[str, int], tuple[int, ...]]:
    """(Kind of the subject and relation, such as "company.founder", object) -> subjects."""
    found = dict[tuple[str, int], list[int]]()
    for thing in country():
        for relation, value in thing.facts.items():
            if isinstance(value, int):
                found.setdefault((f"{thing.kind}.{relation}", value), []).append(thing.number)
    return MappingProxyType({key: tuple(numbers) for key, numbers in found.items()})
