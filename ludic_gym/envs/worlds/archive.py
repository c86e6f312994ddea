"""A fictional country: its facts, the passages about it, and questions of several hops.

Every relation gives one object to a subject, so that a chain of relations has one answer. The seed
is fixed: the country is the same in every process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.tools.search import Index

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


# Kind and relation -> sentences; {s} is the subject, {o} the object.
SENTENCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "region.capital": ("Its capital is {o}.", "{s} is governed from its capital, {o}."),
        "region.governor": ("The governor of {s} is {o}.", "{o} holds the office of governor."),
        "river.source": ("{s} rises in {o}.", "The source of {s} lies in {o}."),
        "river.length": ("It is {o} kilometres long.", "{s} has a length of {o} kilometres."),
        "town.region": ("{s} is a town in {o}.", "The town of {s} belongs to {o}."),
        "town.river": ("It lies on the {o}.", "The {o} flows through {s}."),
        "town.mayor": ("Its mayor is {o}.", "{o} was elected mayor of {s}."),
        "town.population": ("It has a population of {o}.", "In all, {o} people live there."),
        "school.town": ("{s} is a school in {o}.", "The buildings of {s} stand in {o}."),
        "school.head": ("The head of the school is {o}.", "{s} is led by {o}."),
        "school.opened": ("It opened in {o}.", "{s} took in its first pupils in {o}."),
        "company.town": ("{s} is a company based in {o}.", "The head office of {s} is in {o}."),
        "company.founder": ("It was founded by {o}.", "{o} was the founder of {s}."),
        "company.director": ("Its director is {o}.", "The business of {s} is directed by {o}."),
        "company.founded": ("The company was founded in {o}.", "{s} has traded since {o}."),
        "company.product": ("It makes {o}.", "{s} is known for its {o}."),
        "person.birthplace": ("{s} was born in {o}.", "{s} came into the world in {o}."),
        "person.born": ("The year of birth is {o}.", "{s} is a child of the year {o}."),
        "person.school": ("{s} was educated at {o}.", "{s} was a pupil of {o}."),
        "person.employer": ("{s} works for {o}.", "The employer of {s} is {o}."),
        "person.profession": ("{s} is a {o} by profession.", "By trade, {s} is a {o}."),
        "work.author": ("{s} was written by {o}.", "The author of {s} is {o}."),
        "work.publisher": ("It was published by {o}.", "{o} brought {s} before the public."),
        "work.setting": ("It is set in {o}.", "The story of {s} takes place in {o}."),
        "work.published": ("It appeared in {o}.", "The first edition is from {o}."),
        "work.form": ("{s} is counted as a {o}.", "In form, it is a {o}."),
    }
)  # fmt: skip


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
    return MappingProxyType({thing.name.lower(): thing.number for thing in country()})


@cache
def index() -> Index:
    """The index of all passages, made at the first search of the process."""
    return Index([f"{thing.name}. {passage(thing.number)}" for thing in country()])


INVERSE = "~"
# Relation -> its noun phrases, empty for one that ends at a text, and its questions; {x} is the
# thing it begins at. An inverse relation begins at the object. In noun phrases {x} comes last, so
# that phrases can be put into each other: "the capital of the region of {x}".
PHRASES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "region.capital": (("the capital of {x}",), ("Which town is the capital of {x}?",)),
        "region.governor": (("the governor of {x}",), ("Who is the governor of {x}?",)),
        "river.source": (
            ("the region that holds the source of {x}",),
            ("Which region holds the source of {x}?",),
        ),
        "river.length": ((), ("What is the length, in kilometres, of {x}?",)),
        "town.region": (("the region of {x}",), ("What is the region of {x}?",)),
        "town.river": (("the river that flows through {x}",), ("Which river flows through {x}?",)),
        "town.mayor": (("the mayor of {x}",), ("Who is the mayor of {x}?",)),
        "town.population": (
            (),
            ("What is the population of {x}?", "How many people live in {x}?"),
        ),
        "school.town": (("the town that is home to {x}",), ("Which town is home to {x}?",)),
        "school.head": (("the head of {x}",), ("Who is the head of {x}?",)),
        "school.opened": ((), ("What is the year of the opening of {x}?",)),
        "company.town": (("the town with the head office of {x}",), ("Where is {x} based?",)),
        "company.founder": (("the founder of {x}",), ("Who founded {x}?",)),
        "company.director": (("the director of {x}",), ("Who is the director of {x}?",)),
        "company.founded": ((), ("In which year was {x} founded?",)),
        "company.product": ((), ("What does {x} make?",)),
        "person.birthplace": (
            ("the birthplace of {x}",),
            ("What is the birthplace of {x}?", "In which town was {x} born?"),
        ),
        "person.born": ((), ("In which year was {x} born?",)),
        "person.school": (
            ("the school that educated {x}",),
            ("Which school educated {x}?", "Which school did {x} attend?"),
        ),
        "person.employer": (
            ("the employer of {x}",),
            ("Which company is the employer of {x}?", "For which company does {x} work?"),
        ),
        "person.profession": ((), ("What is the profession of {x}?",)),
        "work.author": (("the author of {x}",), ("Who wrote {x}?", "Who is the author of {x}?")),
        "work.publisher": (("the publisher of {x}",), ("Which company published {x}?",)),
        "work.setting": (("the setting of {x}",), ("Which town is the setting of {x}?",)),
        "work.published": ((), ("In which year did {x} appear?",)),
        "work.form": ((), ("Which form of art is {x}: a novel, a play, or another one?",)),
        "~region.capital": (
            ("the region whose capital is {x}",),
            ("Which region has as its capital {x}?",),
        ),
        "~region.governor": (
            ("the region governed by {x}",),
            ("Which region is governed by {x}?",),
        ),
        "~town.mayor": (("the town whose mayor is {x}",), ("Which town has as its mayor {x}?",)),
        "~school.head": (("the school led by {x}",), ("Which school is led by {x}?",)),
        "~company.founder": (
            ("the company founded by {x}",),
            ("Which company was founded by {x}?",),
        ),
        "~company.director": (
            ("the company directed by {x}",),
            ("Which company is directed by {x}?",),
        ),
        "~work.author": (("the work written by {x}",), ("Which work was written by {x}?",)),
    }
)
# Relations that begin at an object, by its kind.
INVERSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "town": ("region.capital",),
        "person": (
            "region.governor", "town.mayor", "school.head", "company.founder",
            "company.director", "work.author",
        ),
    }
)  # fmt: skip


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
        nouns, questions = PHRASES[relation]
        path.append(relation)
        support.append(subject)
        is_last = hop == hops - 1
        # A text has no relations; a passage that is needed twice would be one hop less.
        if (not is_last and isinstance(end, str)) or len(set(support)) <= hop:
            return None
        phrase = pick(rng, questions if is_last else nouns).format(x=phrase)
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
    for relation in INVERSES.get(thing.kind, ()):
        subjects = by_object().get((relation, thing.number), ())
        # A person with two works has no "the work that ... wrote".
        if len(subjects) == 1:
            yield INVERSE + relation, subjects[0], subjects[0]
