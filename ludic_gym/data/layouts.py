"""Layouts of published data sets, by which rows are recognised: `envs_registry/data_sets.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from envs_registry.data_sets import DATA_SETS, Place
from ludic_gym.data.fields import has_place, mapped
from ludic_gym.data.row import Row


def in_layout(row: Row, kind: str) -> Row:
    """A row of the names that environments of a kind read; the row as it is in no known layout.

    kind: of `DataSet`; "" for none.

    >>> in_layout(Row("line 1", {"Problem": "1 + 1?", "Answer": 2, "ID": "I-1"}), "maths").fields
    {'question': '1 + 1?', 'answer': 2}
    """
    for layout in layouts(kind):
        there = {name: place for name, place in layout.items() if has_place(row, place)}
        if all(name in there or name.endswith("?") for name in layout):
            return mapped(row, {name.removesuffix("?"): place for name, place in there.items()})
    return row


@cache
def layouts(kind: str) -> tuple[Mapping[str, Place], ...]:
    """The layouts of a kind, those with most columns first."""
    found = {tuple(s.fields.items()): s.fields for s in DATA_SETS.values() if s.kind == kind != ""}
    return tuple(sorted(found.values(), key=_columns, reverse=True))


def _columns(layout: Mapping[str, Place]) -> int:
    needed = [place for name, place in layout.items() if not name.endswith("?")]
    return sum(place.count("{") or 1 if isinstance(place, str) else len(place) for place in needed)


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """The names that environments of a kind read; () for those of no kind, which may be any."""
    fields = (entry.fields for entry in DATA_SETS.values() if entry.kind == kind)
    return tuple(dict.fromkeys(name.removesuffix("?") for names in fields for name in names))
