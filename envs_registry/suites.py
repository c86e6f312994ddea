"""Named lists of environments for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from envs_registry.catalog import CATALOG

_NAMES = sorted({name for entry in CATALOG for name in entry.suites})

# From each suite's name to the ids in it, in the catalogue's order.
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(entry.id for entry in CATALOG if name in entry.suites) for name in _NAMES}
)
_BENCH_KWARGS = {entry.id: entry.bench_kwargs for entry in CATALOG}


def bench_kwargs(suite: str) -> Mapping[str, Mapping[str, str]]:
    """The ids of a suite, each with what the suite makes it with. Raises KeyError for no suite."""
    return {env_id: _BENCH_KWARGS[env_id] for env_id in SUITES[suite]}
