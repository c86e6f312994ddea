"""Questions about the archive: chains of one to four relations that begin at a named thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.worlds.archive.facts import Thing, by_object, country

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


def asked(hops: int, rng: np.random.Generator) -> Query:
    """A question that needs `hops` different passages."""
    while True:
        query = _drawn(hops, rng)
        if query is not None:
            return query


def _drawn(hops: int, rng: np.random.Generator) -> Query | None:
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
