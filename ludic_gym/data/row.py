"""Row: one row of a data set, and checks of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.errors import DataError


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and its place for error messages ("rows.jsonl line 3")."""

    where: str
    fields: Mapping[str, Any]


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """The row with further field names, {theirs: ours}, unless it has a field of our name.

    `renamed(row, {"type": "subject"})` reads another publisher's field "type" as "subject".
    """
    others = {ours: row.fields[theirs] for theirs, ours in names.items() if theirs in row.fields}
    return Row(row.where, {**others, **row.fields})


def text_field(row: Row, name: str) -> str:
    """A text field. Raises DataError if it is missing, no text, or blank."""
    value = row.fields.get(name)
    if not isinstance(value, str) or not value.strip():
        found = f"it is {value!r}" if name in row.fields else f"fields: {sorted(row.fields)}"
        raise DataError(f"{row.where}: no text in field {name!r} ({found})")
    return value


@lru_cache(maxsize=16)
def words(path: Path) -> tuple[str, ...]:
    """The words of a bundled list, one or several per line, read once per process."""
    return tuple(path.read_text(encoding="utf-8").split())
