"""Row: one row of a data set, checks of its fields, and the rows of a local file."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.errors import DataError
from ludic_gym.packages import optional

# JSON lines, plain or gzipped; parquet; a JSON list; a table with a line of names.
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet", ".json", ".csv")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data set.

    where: its place for error messages, such as "rows.jsonl line 3".
    fields: values by name, as the file has them.
    """

    where: str
    fields: Mapping[str, Any]


def rename_fields(row: Row, names: Mapping[str, str]) -> Row:
    """The row with further field names, {theirs: ours}, unless it has a field of our name.

    Reads another publisher's field "type" as "subject":

    >>> rename_fields(Row("line 1", {"type": "biology"}), {"type": "subject"}).fields
    {'subject': 'biology', 'type': 'biology'}
    """
    others = {ours: row.fields[theirs] for theirs, ours in names.items() if theirs in row.fields}
    return Row(row.where, {**others, **row.fields})


def text_field(row: Row, name: str) -> str:
    """A text field, as it is. Raises DataError if it is missing, no text, or blank.

    >>> text_field(Row("rows.jsonl line 3", {"question": " "}), "question")
    Traceback (most recent call last):
    ...
    ludic_gym.errors.DataError: rows.jsonl line 3: no text in field 'question' (it is ' ')
    """
    value = row.fields.get(name)
    if not isinstance(value, str) or not value.strip():
        problem = f"it is {value!r}" if name in row.fields else f"fields: {sorted(row.fields)}"
        raise DataError(f"{row.where}: no text in field {name!r} ({problem})")
    return value


def parse_json(row: Row, name: str, text: str) -> Any:  # noqa: ANN401 (JSON)
    """The value of a text of JSON in a field. Raises DataError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{row.where}: field {name!r} is not JSON ({error}): {text[:80]!r}"
        raise DataError(message) from error


@lru_cache(maxsize=16)
def words(path: Path) -> tuple[str, ...]:
    """The words of a bundled list, one or several per line, read once per process.

    path: a UTF-8 text; words are separated by any white space.
    """
    return tuple(path.read_text(encoding="utf-8").split())


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a file with one of the `ENDINGS`, without blank lines.

    A row's place is the path and the line, from 1, or the row in a file without lines, from 0. A
    .json file is a list of objects, an object with one such list, or an object of objects by name.
    Raises DataError with the number of a line that cannot be read, MissingPackage where pyarrow is
    needed and missing.
    """
    readers = {".parquet": _parquet_rows, ".json": _json_rows, ".csv": _csv_rows}
    return readers.get(path.suffix, _json_lines)(path)


def _text(path: Path) -> str:
    """The text of a UTF-8 file, plain or gzipped; DataError if it is none."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        kind = "gzipped UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise DataError(f"{path}: cannot be read as {kind} ({error})") from error


def _json_rows(path: Path) -> Iterator[Row]:
    """The rows of a file of one JSON value: see `file_rows`."""
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
    return (Row(f"{path} row {i}", fields) for i, fields in enumerate(value))


def _csv_rows(path: Path) -> Iterator[Row]:
    """The rows of a table with names in its first line; all fields are texts."""
    try:
        table = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True)
        rows = list(table)
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV table ({error})") from error
    # A line with more or fewer cells than names has the key None, or the value None.
    for number, fields in enumerate(rows):
        if None in fields or None in fields.values():
            raise DataError(f"{path} row {number}: not as many cells as names: {fields!r:.80}")
    return (Row(f"{path} row {i}", fields) for i, fields in enumerate(rows))


def _json_lines(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines, plain or gzipped."""
    # Not `splitlines`: a text in JSON may hold U+2028, which would split its line.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            yield _json_row(line, f"{path} line {number}")


def _json_row(line: str, where: str) -> Row:
    """The row of one line. Raises DataError unless it is a JSON object."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error}): {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise DataError(f"{where}: a row is a JSON object, got {line[:80]!r}")
    return Row(where, fields)


def _parquet_rows(path: Path) -> Iterator[Row]:
    """The rows of a parquet file."""
    parquet = optional("pyarrow.parquet", "ludic-gym[data]")
    arrow = optional("pyarrow", "ludic-gym[data]")
    try:
        rows = parquet.read_table(path).to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error})") from error
    return (Row(f"{path} row {i}", fields) for i, fields in enumerate(rows))
