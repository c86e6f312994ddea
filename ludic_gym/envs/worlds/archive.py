"""A fictional country: its facts, the passages about it, and questions of several hops.

Every relation gives one object to a subject, so that a chain of relations has one answer. The seed
is fixed: the country is the same in every process.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.tools.search import Index

SEED = 2026
_TEXT = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "archive.toml").read_text(encoding="utf-8")
)
# Kind -> number of things.
COUNTS: Mapping[str, int] = _TEXT["counts"]
# Kind and relation -> sentences; relation -> noun phrases, and questions.
SENTENCES: Mapping[str, list[str]] = _TEXT["sentences"]
NOUNS: Mapping[str, list[str]] = _TEXT["nouns"]
QUESTIONS: Mapping[str, list[str]] = _TEXT["questions"]
WORDS: Mapping[str, list[str]] = {name: text.split() for name, text in _TEXT["words"].items()}
_YEARS = range(1500, 2000)
_CODAS = ("", "", "l", "m", "n", "r", "s", "nd", "rk", "st")


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

    def distinct(other: str) -> Iterator[int | str]:
        # No two things share one, so that the relation can be asked in both directions.
        yield from rng.sample(numbers[other], len(numbers[kind]))

    def text(choices: Sequence[object]) -> Iterator[int | str]:
        return (str(rng.choice(choices)) for _ in numbers[kind])

    made: dict[str, dict[str, Iterator[int | str]]] = {
        "region": {"capital": distinct("town"), "governor": distinct("person")},
        "river": {"source": any_of("region"), "length": text(range(40, 900))},
        "town": {
            "region": any_of("region"),
            "river": any_of("river"),
            "mayor": distinct("person"),
            "population": text(range(1_100, 99_000)),
        },
        "school": {"town": any_of("town"), "head": distinct("person"), "opened": text(_YEARS)},
        "company": {
            "town": any_of("town"),
            "founder": distinct("person"),
            "director": distinct("person"),
            "founded": text(_YEARS),
            "product": text(WORDS["product"]),
        },
        "person": {
            "birthplace": any_of("town"),
            "born": text(_YEARS),
            "school": any_of("school"),
            "employer": any_of("company"),
            "profession": text(WORDS["profession"]),
        },
        "work": {
            "author": any_of("person"),
            "publisher": any_of("company"),
            "setting": any_of("town"),
            "published": text(_YEARS),
            "form": text(WORDS["form"]),
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
            return word + rng.choice(WORDS["ending"])
        case "river":
            return f"River {word}"
        case "region":
            return f"{word} {rng.choice(('Province', 'County', 'Shire'))}"
        case "school":
            return f"{word} {rng.choice(('Academy', 'College', 'Grammar School'))}"
        case "company":
            return f"{word} {rng.choice(('Works', 'and Sons', 'Trading Company', 'Brothers'))}"
    return f"The {rng.choice(WORDS['adjective'])} {rng.choice(WORDS['noun'])} of {word}"


def _word(rng: random.Random, syllables: int) -> str:
    return "".join(
        rng.choice(WORDS["onset"]) + rng.choice(WORDS["vowel"]) + rng.choice(_CODAS)
        for _ in range(syllables)
    ).capitalize()


@cache
def by_object() -> Mapping[tuple[str, int], tuple[int, ...]]:
    """(Kind of the subject and relation, such as "company.founder", object) -> subjects."""
    subjects = dict[tuple[str, int], list[int]]()
    for thing in country():
        for relation, value in thing.facts.items():
            if isinstance(value, int):
                subjects.setdefault((f"{thing.kind}.{relation}", value), []).append(thing.number)
    return {key: tuple(numbers) for key, numbers in subjects.items()}


def passage(number: int) -> str:
    """The text about a thing, the same in every process."""
    thing = country()[number]
    # A generator of its own for each thing, so that passages do not depend on the order of reading.
    rng = random.Random(SEED * 100_003 + number)
    sentences = []
    for relation, value in thing.facts.items():
        other = country()[value].name if isinstance(value, int) else value
        sentence = rng.choice(SENTENCES[f"{thing.kind}.{relation}"])
        if other.startswith(tuple("aeiou")):
            sentence = sentence.replace("a {o}", "an {o}")
        sentences.append(sentence.format(s=thing.name, o=other))
    rng.shuffle(sentences)
    # A reader must know the subject before "it" is used.
    named = next((i for i, text in enumerate(sentences) if thing.name in text), None)
    if named is None:
        sentences.insert(0, f"This entry is about {thing.name}.")
    else:
        sentences.insert(0, sentences.pop(named))
    return " ".join(text[0].upper() + text[1:] for text in sentences)


@cache
def titles() -> Mapping[str, int]:
    """Title in lower case -> number of the passage."""
    return {thing.name.lower(): thing.number for thing in country()}


@cache
def index() -> Index:
    """The index of all passages, made at the first search of the process."""
    return Index([f"{thing.name}. {passage(thing.number)}" for thing in country()])


INVERSE = "~"
# Relations that begin at an object, by its kind.
_INVERSES: Mapping[str, tuple[str, ...]] = {
    "town": ("region.capital",),
    "person": (
        "region.governor", "town.mayor", "school.head", "company.founder",
        "company.director", "work.author",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question with its one answer.

    start: number of the thing it names. path: relations in order, "~" before an inverse one.
    support: numbers of the passages that state the facts, in the order of the path.
    """

    text: str
    answer: str
    start: int
    path: tuple[str, ...]
    support: tuple[int, ...]

    @property
    def chain(self) -> str:
        """Start and path: equal for questions that differ only in their words."""
        return f"{self.start} {' '.join(self.path)}"


def question_text(hops: int, rng: np.random.Generator) -> Query:
    """A question that needs `hops` different passages."""
    while True:
        query = _draw_relation(hops, rng)
        if query is not None:
            return query


def _draw_relation(hops: int, rng: np.random.Generator) -> Query | None:
    """A random chain of `hops` relations; None if it goes in a circle or ends too early."""
    things = country()
    start = here = pick(rng, things)
    phrase, path, support, passed = here.name, list[str](), list[int](), {here.name}
    for hop in range(hops):
        relation, subject, end = pick(rng, list(steps(here)))
        path.append(relation)
        support.append(subject)
        is_last = hop == hops - 1
        # A text has no relations; a passage that is needed twice would be one hop less.
        if (not is_last and isinstance(end, str)) or len(set(support)) <= hop:
            return None
        phrase = pick(rng, (QUESTIONS if is_last else NOUNS)[relation]).format(x=phrase)
        if isinstance(end, int):
            here = things[end]
            if here.name in passed:
                return None
            passed.add(here.name)
    answer = end if isinstance(end, str) else things[end].name
    # A question that names its answer is none.
    if answer in phrase:
        return None
    return Query(
        text=phrase[0].upper() + phrase[1:],
        answer=answer,
        start=start.number,
        path=tuple(path),
        support=tuple(support),
    )


def steps(thing: Thing) -> Iterator[tuple[str, int, int | str]]:
    """Relations from a thing: name, number of the passage that states it, and where it ends."""
    for relation, value in thing.facts.items():
        yield f"{thing.kind}.{relation}", thing.number, value
    for relation in _INVERSES.get(thing.kind, ()):
        subjects = by_object().get((relation, thing.number), ())
        # A person with two works has no "the work that ... wrote".
        if len(subjects) == 1:
            yield INVERSE + relation, subjects[0], subjects[0]
