"""Published data sets, read from `data_sets.toml`: where they are, and what their columns hold."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from envs_registry.published import PUBLISHED, PublishedEntry

Place = str | tuple[str, ...]
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """One data set in the columns of its publisher.

    name: key of the table. title: name for people. env: id of the environment that reads it.
    benchmark: name of the published benchmark that plays it; "" if there is none.
    kind: of questions, such as "maths", "choice", "short" and "program", each with its own names of
        fields; "" if only its own environment reads it, by its publisher's columns.
    fields: name of a field that an environment reads -> its column, as a path, a template or a list
        of paths (`ludic_gym.data.fields`). A name with "?" at its end may be missing.
    hub, config: id on the hub and the default part; "" if there is none.
    split: the split that is meant unless one is named.
    splits: the publisher's names of our splits "test" and "train", where they differ.
    files: address of a split's rows, for a set that is published as a program, which `datasets` no
        longer runs. "{split}" stands for the split.
    licence: of the data. columns: those that are read, for people.
    """

    name: str
    title: str
    env: str
    benchmark: str = ""
    kind: str = ""
    fields: Mapping[str, Place] = field(default_factory=lambda: MappingProxyType({}))
    hub: str = ""
    config: str = ""
    split: str = "test"
    splits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: str = ""
    licence: str = NOT_STATED
    columns: str = ""


def _entry(name: str, block: dict[str, Any]) -> DataSet:
    fields = {
        key: place if isinstance(place, str) else tuple(place)
        for key, place in block.pop("fields", {}).items()
    }
    facts = {"columns": _columns(fields)}
    if benchmark := block.get("benchmark", ""):
        facts |= _facts(PUBLISHED[benchmark])
    splits = MappingProxyType(block.pop("splits", facts.pop("splits", {})))
    return DataSet(name=name, fields=MappingProxyType(fields), splits=splits, **{**facts, **block})


def _facts(entry: PublishedEntry) -> dict[str, Any]:
    """The fields that the table of benchmarks has already."""
    names = ("title", "hub", "config", "licence", "columns")
    splits = {} if entry.split == "test" else {"test": entry.split}
    return {name: getattr(entry, name) for name in names} | {"env": entry.id, "splits": splits}


def _columns(fields: Mapping[str, Place]) -> str:
    places = [(place,) if isinstance(place, str) else place for place in fields.values()]
    return ", ".join(dict.fromkeys(path for paths in places for path in paths))


_TABLE = tomllib.loads(Path(__file__).with_name("data_sets.toml").read_text(encoding="utf-8"))

_HERE = {name: _entry(name, block) for name, block in _TABLE.items()}
_BENCHMARKS = PUBLISHED.keys() - {entry.benchmark for entry in _HERE.values()}

# Name of a data set -> its entry: those of the file, then the other benchmarks.
DATA_SETS: Mapping[str, DataSet] = MappingProxyType(
    _HERE | {name: _entry(name, {"benchmark": name}) for name in PUBLISHED if name in _BENCHMARKS}
)
