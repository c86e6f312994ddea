"""Data sets of the hub that environments read, and their licences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from envs_registry.data_sets import DATA_SETS, NOT_STATED, DataSet
from ludic_gym.data.row import Row
from ludic_gym.errors import DataError
from ludic_gym.packages import optional

OWN = "Apache-2.0"

_BY_ID: Mapping[str, DataSet] = MappingProxyType(
    # Reversed, so that of several entries with one id the first has the defaults.
    {entry.hub: entry for entry in reversed(list(DATA_SETS.values())) if entry.hub}
)


def licence_of(name: str, split: str = "") -> str:
    """Licence of rows; "not stated" for files of the user and for unknown sets.

    name, split: as `Origin` has them.

    >>> licence_of("openai/gsm8k:main", "test"), licence_of("sample", "sample")
    ('MIT', 'Apache-2.0')
    """
    if split == "sample":
        return OWN
    entry = _BY_ID.get(name.partition(":")[0])
    return NOT_STATED if entry is None else entry.licence


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


def hub_data(id: str, *, config: str | None = None, split: str | None = None) -> HubData:
    """A split of the data set with that id.

    config, split: else the default of `envs_registry.data_sets`, else None and "test". Nothing is
        downloaded.

    >>> hub_data("cais/mmlu", split="train")
    HubData(id='cais/mmlu', config='all', split='auxiliary_train', requested='train')
    """
    entry = _BY_ID.get(id)
    if entry is None:
        return HubData(id, config, split or "test", split or "test")
    requested = split or entry.split
    part = config or entry.config or None
    return HubData(id, part, entry.splits.get(requested, requested), requested)


class HubRows:
    """The rows of a split, in files of `datasets` that are mapped into memory.

    Each row's `where` is the id, the split and its number from 0, for error messages.
    """

    def __init__(self, data: HubData, table: Any) -> None:  # noqa: ANN401 (a `datasets.Dataset`)
        self._where, self._table = f"{data.id} {data.split}", table
        self.size_bytes = int(table.data.nbytes)

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        for place, fields in enumerate(self._table):
            yield place, Row(f"{self._where} row {place}", fields)

    def row_at(self, place: int) -> Row:
        """The row of that number."""
        return Row(f"{self._where} row {place}", self._table[place])


def hub_rows(data: HubData) -> HubRows:
    """The rows of the split; without network, those of an earlier download.

    Raises MissingPackage without the package `datasets`, DataError, naming two other ways to get
    rows, if the split cannot be loaded.
    """
    datasets = optional("datasets", "ludic-gym[data]")
    files = _BY_ID[data.id].files if data.id in _BY_ID else ""
    try:
        if files:
            address = files.format(split=data.split)
            table = datasets.load_dataset("json", data_files=address, split="train")
        else:
            table = datasets.load_dataset(data.id, data.config, split=data.split)
    # `datasets` has no error class of its own: what it cannot find or read is one of these.
    except (OSError, ValueError, RuntimeError) as error:
        # Errors of the hub are pages long, and may hold a whole reply in HTML.
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{data.id}, split {data.split!r}: cannot be loaded from the hub ({reason}); without "
            "it, name a file (data='rows.jsonl', .parquet, .json or .csv), or leave data and split "
            "out for the bundled sample where there is one"
        ) from error
    return HubRows(data, table)
