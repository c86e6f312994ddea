"""The catalogue: environments of ours and of other packages, their entry points and suites."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvEntry:
    """One environment.

    id: name in all registries.
    title, description: name and summary for people.
    gym, aec, parallel: entry points "module:attribute" for Gymnasium and for PettingZoo's two
        registries; "" if there is no such view.
    seats: numbers of players that the views of PettingZoo can have.
    suites: benchmarks that contain it; the page lists it under the first.
    tags: search terms.
    random_success, oracle_success: success rates with default arguments of random legal actions
        (random texts if any text is legal), and of the environment's oracle.
    failure_share: highest share of a success's reward that a failure may be paid.
    levels: an argument that decides how hard the tasks are, and some of its values, from the
        easiest to the hardest; ("", ()) if there is none. `level="easy"`, "medium" and "hard" are
        the first, the middle and the last one.
    no_levels: reason why there are none; "" if there are.
    few_starts: reason why a level has fewer than 10,000 starts; "" if none has.
    no_splits: reason why there is no train and test split; "" if there are.
    """

    id: str
    title: str
    description: str
    gym: str
    aec: str = ""
    parallel: str = ""
    seats: str = "2"
    suites: tuple[str, ...]
    tags: tuple[str, ...]
    random_success: float = 0.0
    oracle_success: float = 1.0
    failure_share: float = 0.05
    levels: tuple[str, tuple[str | int, ...]] = ("", ())
    no_levels: str = ""
    few_starts: str = ""
    no_splits: str = ""


_TEXT = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")


def _entry(env_id: str, block: dict[str, Any]) -> EnvEntry:
    # An entry is hashable only with tuples, and TOML has only lists and tables.
    ((argument, values),) = block.pop("levels", {"": ()}).items()
    levels = argument, tuple(values)
    suites, tags = tuple(block.pop("suites")), tuple(block.pop("tags"))
    return EnvEntry(id=env_id, suites=suites, tags=tags, levels=levels, **block)


CATALOG: tuple[EnvEntry, ...] = tuple(
    _entry(env_id, block) for env_id, block in tomllib.loads(_TEXT).items()
)

# Name of a suite -> its ids, in the catalogue's order.
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: tuple(entry.id for entry in CATALOG if name in entry.suites)
        for name in sorted({name for entry in CATALOG for name in entry.suites})
    }
)


def level_kwargs(entry: EnvEntry) -> tuple[Mapping[str, str | int], ...]:
    """Arguments of each level of an environment, from the easiest to the hardest; () without any.

    >>> level_kwargs(next(entry for entry in CATALOG if entry.id == "ludic/Arithmetic-v0"))
    ({'digits': 1}, {'digits': 2}, {'digits': 4})
    """
    argument, values = entry.levels
    return tuple({argument: value} for value in values)


def bench_kwargs(suite: str) -> Mapping[str, Mapping[str, str]]:
    """Ids of a suite, each with its arguments there. Raises KeyError for an unknown suite.

    Every dataset has its real split, so that no score of a suite comes from the bundled sample.
    """
    datasets = {entry.id for entry in CATALOG if "dataset" in entry.tags}
    return {env_id: {"split": "test"} if env_id in datasets else {} for env_id in SUITES[suite]}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """An environment of another package, which is imported only when the environment is made.

    id: name in all registries.
    gym, aec: entry points "module:attribute" for Gymnasium and PettingZoo; "" if there is no such
        view.
    kwargs: arguments of the adapter.
    package: required package.
    extra: extra of Ludic that installs the package.
    """

    id: str
    gym: str = ""
    aec: str = ""
    kwargs: Mapping[str, str]
    package: str
    extra: str = "adapters"


_TABLE = tomllib.loads(Path(__file__).with_name("adapters.toml").read_text(encoding="utf-8"))

ADAPTERS: tuple[AdapterEntry, ...] = tuple(
    AdapterEntry(
        id=f"ludic/{group['prefix']}-{name}-v0",
        kwargs={key: value.format(name) for key, value in group["kwargs"].items()},
        **{key: group[key] for key in group.keys() & {"gym", "aec", "package", "extra"}},
    )
    for group in _TABLE["group"]
    for name in group["names"].split()
)

# Package -> its datasets or games that are not environments, each with the reason: it ...
SKIPPED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        package: {name: reason for reason, names in reasons.items() for name in names.split()}
        for package, reasons in _TABLE["skipped"].items()
    }
)


def reason_left_out(name: str) -> str:
    """The reason for which what would be ludic/NAME is no environment: it ...; "" for any other.

    >>> reason_left_out("rg-composite")
    'consists of other datasets'
    """
    prefix, _, item = name.partition("-")
    packages = {group["prefix"]: group["package"] for group in _TABLE["group"]}
    return SKIPPED.get(packages.get(prefix, ""), {}).get(item, "")
