"""The environments of other packages, read from `adapters.toml`: ids and entry points."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


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
