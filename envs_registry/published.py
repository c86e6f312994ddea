"""Published benchmarks, read from `published.toml`: data, rule of the grade, and a known score."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

ENV = "ludic_gym.envs.questions.published:PublishedEnv"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScore:
    """Score of one public model, in percent, and where it was published."""

    model: str
    score: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLimits:
    """Sampling of published scores: parameters, samples of each question, and who states them."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    samples: int = 1
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEntry:
    """One benchmark.

    name: name for `ludic bench`, such as "mmlu-pro". id: of the environment that plays it.
    title: name for people. paper: reference of the benchmark.
    gym: entry point; "" for an environment of the catalogue.
    kwargs: arguments of that environment when it is made by the name.
    hub, config, split: the data set of the hub, its part, and the publisher's name of the split;
        "" if there is none. licence: of the data.
    columns: fields of a row that are read.
    prompt: system prompt; "{subject}" stands for the subject of the row. "" where the class has it.
    rule: how a reply is graded. metrics: names of the published figures, the success rate first.
    differs: what is not as published; "" if nothing is.
    known: a published score; None if no source is certain.
    limits: sampling unless a command names another; None if no source is certain.
    """

    name: str
    id: str
    title: str
    paper: str
    gym: str = ENV
    kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hub: str = ""
    config: str = ""
    split: str = "test"
    licence: str
    columns: str
    prompt: str = ""
    rule: str
    metrics: tuple[str, ...]
    differs: str = ""
    known: KnownScore | None = None
    limits: PublishedLimits | None = None


def _entry(name: str, block: dict[str, Any]) -> PublishedEntry:
    score, limits = block.pop("known", None), block.pop("limits", None)
    return PublishedEntry(
        name=name,
        metrics=tuple(block.pop("metrics")),
        kwargs=MappingProxyType(block.pop("kwargs", {})),
        known=None if score is None else KnownScore(**score),
        limits=None if limits is None else PublishedLimits(**limits),
        **block,
    )


_TABLE = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))

# Name of a benchmark -> its entry, in the order of the file.
PUBLISHED: Mapping[str, PublishedEntry] = MappingProxyType(
    {name: _entry(name, block) for name, block in _TABLE.items()}
)
