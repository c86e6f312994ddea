"""Row: one row of a data set, checks of its fields, and the rows of a local file."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.errors import DataError
from ludic_gym.extras import optional

# JSON lines, plain or gzipped, or parquet.
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data set.

    where: its place for error messages, such as "rows.jsonl line 3".
    fields: values by name, as the file has them.
    """

    where: str
    fields: Mapping[str, Any]


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """The row with further field names, {theirs: ours}, unless it has a field of our name.

    Reads another publisher's field "type" as "subject":

    >>> renamed(Row("line 1", {"type": "biology"}), {"type": "subject"}).fields
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
        found = f"it is {value!r}" if name in row.fields else f"fields: {sorted(row.fields)}"
        raise DataError(f"{row.where}: no text in field {name!r} ({found})")
    return value


@lru_cache(maxsize=16)
def words(path: Path) -> tuple[str, ...]:
    """The words of a bundled list, one or several per line, read once per process.

    path: a UTF-8 text; words are separated by any white space.
    """
    return tuple(path.read_text(encoding="utf-8").split())


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a file with one of the `ENDINGS`, without blank lines.

    A row's place is the path and the line, from 1, or the row in a parquet file, from 0.
    Raises DataError with the number of a line that cannot be read, MissingPackage where pyarrow is
    needed and missing.
    """
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_lines(path)


def _json_lines(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines, plain or gzipped."""
    try:
        data = path.read_bytes()
        # Not `splitlines`: a text in JSON may hold U+2028, which would split its line.
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        kind = "gzipped UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise DataError(f"{path}: cannot be read as {kind} ({error})") from error
    for number, line in enumerate(lines, 1):
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
