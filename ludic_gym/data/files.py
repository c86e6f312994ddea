"""Rows of a local file: JSON lines, plain or gzipped, or parquet."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from ludic_gym.data.row import Row
from ludic_gym.errors import ConfigError, DataError

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a file with one of the `ENDINGS`, without blank lines.

    Raises DataError with the number of a line that cannot be read, ConfigError where pyarrow is
    needed and missing.
    """
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_lines(path)


def _json_lines(path: Path) -> Iterator[Row]:
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        kind = "gzipped UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise DataError(f"{path}: cannot be read as {kind} ({error})") from error
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
