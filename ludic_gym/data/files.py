"""Rows of local files, read one after the other, or by their places in a large file."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.data.row import Row
from ludic_gym.errors import DataError
from ludic_gym.packages import optional

# JSON lines, plain or gzipped; parquet; a JSON list; a table with a line of names.
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet", ".json", ".csv")
# Files whose rows can be read by their places.
INDEXED = (".jsonl", ".parquet")
# Rows of some sets have megabytes each.
_BATCH = 64
_BOM = b"\xef\xbb\xbf"

Placed = tuple[int, Row | DataError]
"""The place of a row in its file, for `row_at`, and the row, or the reason why there is none."""


def file_rows(path: Path) -> Iterator[Placed]:
    """The rows of a file with one of the `ENDINGS`, without blank lines.

    A row's `where` is the path and the line, from 1, or the row in a file without lines, from 0. A
    .json file is a list of objects, an object with one such list, or an object of objects by name.
    Only files of that ending are held in memory as a whole.
    Raises DataError for a file that cannot be read, MissingPackage where pyarrow is needed and
    missing.
    """
    readers = {".parquet": _parquet_rows, ".json": _json_rows, ".csv": _csv_rows}
    return readers.get(path.suffix, _json_lines)(path)


def row_at(path: Path, place: int, changed_ns: int) -> Row:
    """The row at a place that `file_rows` told, of a file with one of the `INDEXED` endings.

    changed_ns: time of change of the file, for what is held of it.
    """
    if path.suffix == ".parquet":
        return _parquet_row(path, place, changed_ns)
    with path.open("rb") as file:
        file.seek(place)
        row = _json_row(file.readline(), f"{path} at byte {place}")
    assert isinstance(row, Row), "`file_rows` has read this row"
    return row


def _json_lines(path: Path) -> Iterator[Placed]:
    place = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip().removeprefix(_BOM):
                    yield place, _json_row(line, f"{path} line {number}")
                place += len(line)
    except (OSError, EOFError, zlib.error) as error:
        kind = "gzipped UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise DataError(f"{path}: cannot be read as {kind} ({error})") from error


def _json_row(line: bytes, where: str) -> Row | DataError:
    """The row of one line, or an error unless it is a JSON object."""
    try:
        text = line.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        return DataError(f"{where}: cannot be read as UTF-8 text ({error})")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        return DataError(f"{where}: not JSON ({error}): {text[:80]!r}")
    if not isinstance(fields, dict):
        return DataError(f"{where}: a row is a JSON object, got {text[:80]!r}")
    return Row(where, fields)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error


def _json_rows(path: Path) -> Iterator[Placed]:
    text = _text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}): {text[:80]!r}") from error
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list)]
        value = lists[0] if len(lists) == 1 else list(value.values())
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise DataError(f"{path}: rows are a list of JSON objects, got {text[:80]!r}")
    return ((i, Row(f"{path} row {i}", fields)) for i, fields in enumerate(value))


def _csv_rows(path: Path) -> Iterator[Placed]:
    """The rows of a table with names in its first line; all fields are texts."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, fields in enumerate(csv.DictReader(file, strict=True)):
                where = f"{path} row {number}"
                # A line with more or fewer cells than names has the key None, or the value None.
                if None in fields or None in fields.values():
                    error = f"{where}: not as many cells as names: {fields!r:.80}"
                    yield number, DataError(error)
                else:
                    yield number, Row(where, fields)
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV table ({error})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error


def _parquet_rows(path: Path) -> Iterator[Placed]:
    parquet = optional("pyarrow.parquet", "ludic-gym[data]")
    arrow = optional("pyarrow", "ludic-gym[data]")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            # By row groups: asked for all of them, pyarrow holds the whole file at the end.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_BATCH, row_groups=[group], use_threads=False):
                    for fields in batch.to_pylist():
                        yield number, Row(f"{path} row {number}", fields)
                        number += 1
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error})") from error


def _parquet_row(path: Path, number: int, changed_ns: int) -> Row:
    index = number
    for group, count in enumerate(_row_groups(path, changed_ns)):
        if index < count:
            (fields,) = _row_group(path, changed_ns, group).slice(index, 1).to_pylist()
            return Row(f"{path} row {number}", fields)
        index -= count
    raise IndexError(number)


@lru_cache(maxsize=16)
def _row_groups(path: Path, changed_ns: int) -> tuple[int, ...]:
    """Numbers of rows of the row groups, which are what can be read by itself."""
    with optional("pyarrow.parquet", "ludic-gym[data]").ParquetFile(path) as file:
        return tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))


# Few: a row group may have a hundred megabytes.
@lru_cache(maxsize=2)
def _row_group(path: Path, changed_ns: int, group: int) -> Any:  # noqa: ANN401 (pyarrow's table)
    with optional("pyarrow.parquet", "ludic-gym[data]").ParquetFile(path) as file:
        return file.read_row_group(group)
