"""Licences of rows, as their publishers state them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from envs_registry.published import PUBLISHED

OWN = "Apache-2.0"
UNKNOWN = "not stated"

# Id on the hub -> licence: those of published benchmarks, and of further sets of the catalogue.
LICENCES: Mapping[str, str] = MappingProxyType(
    {
        **{entry.hub: entry.licence for entry in PUBLISHED.values() if entry.hub},
        "cais/mmlu": "MIT",
        "codeparrot/apps": "MIT",
        "google-research-datasets/nq_open": "CC BY-SA 3.0",
        "qwedsacf/competition_math": "MIT",
    }
)


def licence_of(name: str, split: str = "") -> str:
    """Licence of rows; "not stated" for files of the user and for unknown sets.

    name, split: as `Origin` has them.

    >>> licence_of("openai/gsm8k:main", "test"), licence_of("sample", "sample")
    ('MIT', 'Apache-2.0')
    """
    if split == "sample":
        return OWN
    return LICENCES.get(name.partition(":")[0], UNKNOWN)
