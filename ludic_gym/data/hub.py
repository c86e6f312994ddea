"""Data sets of the hub that environments read, and their licences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from envs_registry.published import PUBLISHED
from ludic_gym.data.row import Row
from ludic_gym.errors import DataError
from ludic_gym.packages import optional

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSet:
    """Layout of a published data set.

    config: its default part.
    splits: the publisher's names of our splits "test" and "train"; other splits have equal names.
    files: the address of a split's rows, for a data set that is published as a program, which
        `datasets` no longer runs. "{split}" stands for the split.
    """

    config: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: str = ""


@dataclass(frozen=True, slots=True)
class HubData:
    """A split of a data set on the hub.

    id: "owner/name". config: its part, None for a set without parts.
    split: by its publisher's name. requested: by our name, for results.
    """

    id: str
    config: str | None
    split: str
    requested: str = ""


HUB_SETS: Mapping[str, HubSet] = MappingProxyType(
    {
        "openai/gsm8k": HubSet(config="main"),
        "cais/mmlu": HubSet(config="all", splits={"train": "auxiliary_train"}),
        "Idavidrein/gpqa": HubSet(config="gpqa_diamond", splits={"test": "train"}),
        "google-research-datasets/nq_open": HubSet(splits={"test": "validation"}),
        "google-research-datasets/mbpp": HubSet(config="sanitized"),
        "codeparrot/apps": HubSet(files="hf://datasets/codeparrot/apps/{split}.jsonl"),
        "HuggingFaceH4/aime_2024": HubSet(splits={"test": "train"}),
        "google/IFEval": HubSet(splits={"test": "train"}),
        "lukaemon/bbh": HubSet(config="boolean_expressions"),
        "ucinlp/drop": HubSet(splits={"test": "validation"}),
        "hotpotqa/hotpot_qa": HubSet(config="distractor", splits={"test": "validation"}),
        "livecodebench/code_generation_lite": HubSet(
            files="hf://datasets/livecodebench/code_generation_lite/{split}.jsonl"
        ),
    }
)
"""Differences from the usual layout (one part, splits "train" and "test"), by the hub's id."""


def hub_data(id: str, *, config: str | None = None, split: str | None = None) -> HubData:
    """The split, "test" unless given, of the data set with that id.

    config: a part of it, else the default of `HUB_SETS`, else None. Nothing is downloaded.

    >>> hub_data("cais/mmlu", split="train")
    HubData(id='cais/mmlu', config='all', split='auxiliary_train', requested='train')
    """
    layout, requested = HUB_SETS.get(id, HubSet()), split or "test"
    return HubData(id, config or layout.config, layout.splits.get(requested, requested), requested)


def hub_rows(data: HubData) -> Iterator[Row]:
    """The rows of the split; without network, those of an earlier download.

    Each row's place is the id, the split and its number from 0, for error messages.
    Raises MissingPackage without the package `datasets`, DataError, naming two other ways to get
    rows, if the split cannot be loaded.
    """
    datasets = optional("datasets", "ludic-gym[data]")
    files = HUB_SETS.get(data.id, HubSet()).files
    rows: Iterable[dict[str, Any]]
    try:
        if files:
            address = files.format(split=data.split)
            rows = datasets.load_dataset("json", data_files=address, split="train")
        else:
            rows = datasets.load_dataset(data.id, data.config, split=data.split)
    # `datasets` has no error class of its own: what it cannot find or read is one of these.
    except (OSError, ValueError, RuntimeError) as error:
        # Errors of the hub are pages long, and may hold a whole reply in HTML.
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{data.id}, split {data.split!r}: cannot be loaded from the hub ({reason}); without "
            "it, name a file (data='rows.jsonl', .parquet, .json or .csv), or leave data and split "
            "out for the bundled sample where there is one"
        ) from error
    return (Row(f"{data.id} {data.split} row {i}", fields) for i, fields in enumerate(rows))
