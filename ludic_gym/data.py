"""Rows by name: a bundled sample, a local file, or a data set on the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ludic_gym.errors import ConfigError, DataError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it is from, for error messages ("rows.jsonl line 3")."""

    where: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A local file as it is now: one that has changed since is another one."""

    path: Path
    changed_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class HubData:
    """A split of a data set on the hub."""

    id: str
    config: str | None
    split: str


def load(
    name: str,
    parse: Callable[[Row], T],
    *,
    sample: Path,
    config: str | None = None,
    split: str | None = None,
) -> tuple[T, ...]:
    """What `parse` makes of every row, read once per process.

    name: "sample" (the file `sample`), the path of a .jsonl or .parquet file, or a hub id
        ("openai/gsm8k").
    config, split: which part of a hub data set; the split is "test" unless given.
    Raises ConfigError for a name that is none of these, DataError for rows that are missing,
    unreadable, or refused by `parse`.
    """
    return _load(locate(name, sample=sample, config=config, split=split), parse)


def locate(name: str, *, sample: Path, config: str | None, split: str | None) -> File | HubData:
    """Where the rows of that name are."""
    is_file = name == "sample" or name.endswith((".jsonl", ".parquet"))
    if is_file and split is not None:
        raise ConfigError(f"a file has no splits: data={name!r} goes without split={split!r}")
    if is_file:
        return _file(sample if name == "sample" else Path(name))
    if "/" not in name:
        raise ConfigError(
            f'data is "sample", the path of a .jsonl or .parquet file, or a hub id like '
            f'"openai/gsm8k", got {name!r}'
        )
    return HubData(name, config, split or "test")


def text_field(row: Row, name: str) -> str:
    """A field that must hold text. Raises DataError if it is missing, no text, or blank."""
    value = row.fields.get(name)
    if not isinstance(value, str) or not value.strip():
        found = f"it is {value!r}" if name in row.fields else f"fields: {sorted(row.fields)}"
        raise DataError(f"{row.where}: no text in field {name!r} ({found})")
    return value


@lru_cache(maxsize=16)
def words(path: Path) -> tuple[str, ...]:
    """The words of a bundled list, one or several a line, read once per process."""
    return tuple(path.read_text(encoding="utf-8").split())


@lru_cache(maxsize=16)
def _load(origin: File | HubData, parse: Callable[[Row], T]) -> tuple[T, ...]:
    rows = tuple(parse(row) for row in _rows(origin))
    if not rows:
        raise DataError(f"{origin}: there are no rows")
    return rows


def _file(path: Path) -> File:
    try:
        found = path.resolve(strict=True)
        status = found.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    return File(found, status.st_mtime_ns, status.st_size)


def _rows(origin: File | HubData) -> Iterator[Row]:
    if isinstance(origin, HubData):
        return _hub_rows(origin)
    return _parquet_rows(origin.path) if origin.path.suffix == ".parquet" else _jsonl(origin.path)


def _jsonl(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _json_row(line, f"{path} line {number}")


def _json_row(line: str, where: str) -> Row:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error}): {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise DataError(f"{where}: a row is a JSON object, got {line[:80]!r}")
    return Row(where, fields)


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(f"{path} needs pyarrow: pip install 'ludic-gym[data]'") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error})") from error
    return (Row(f"{path} row {i}", fields) for i, fields in enumerate(rows))


def _hub_rows(data: HubData) -> Iterator[Row]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConfigError(f"{data.id} needs datasets: pip install 'ludic-gym[data]'") from error
    try:
        rows = load_dataset(data.id, data.config, split=data.split)
    except (OSError, ValueError) as error:
        raise DataError(f"{data.id}, split {data.split!r}: cannot be loaded ({error})") from error
    return (Row(f"{data.id} {data.split} row {i}", fields) for i, fields in enumerate(rows))
