"""Passages of the archive: one per thing, which states its facts in varied sentences."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ludic_gym.envs.worlds.archive.facts import SEED, country
from ludic_gym.tools.search import Index

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
