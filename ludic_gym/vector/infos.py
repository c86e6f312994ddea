"""Infos of many environments as one dictionary of arrays, in Gymnasium's layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Info = dict[str, Any]
# By key: the indices of the infos that have it, and the values there.
Columns = Mapping[str, tuple[Sequence[int], list[Any]]]
# A type; for arrays, dtype and shape as well.
Kind = object
_NUMBERS = (bool, int, float)
_ARRAY_NUMBERS = (np.number, np.bool_)


def columns_of(infos: Sequence[Info]) -> Columns:
    """The infos by key instead of by environment: the indices that have it, and their values.

    >>> columns_of([{"success": True}, {}])
    {'success': ([0], [True])}
    """
    # Most infos are empty, and the others have few sets of keys, mostly with no key in common.
    having: dict[tuple[str, ...], list[int]] = {}
    for place, info in enumerate(infos):
        if info:
            having.setdefault(tuple(info), []).append(place)
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for keys, places in having.items():
        rows = [infos[place] for place in places]
        for key in keys:
            if key in columns:
                shared = [place for place, info in enumerate(infos) if key in info]
                columns[key] = shared, [infos[place][key] for place in shared]
            else:
                columns[key] = places, [row[key] for row in rows]
    return columns


def merged(columns: Columns, size: int) -> Info:
    """One array of `size` per key, and under "_key" a mask of the environments that have it.

    Numbers become arrays of their type, with 0 for missing ones; arrays are stacked, dictionaries
    merged recursively. All other values are in arrays of objects, with None for missing ones.
    columns: of `columns_of`, the values of a key all of one type: see `kind_conflicts`.

    >>> merged(columns_of([{"score": 1.5}, {}]), 2)
    {'score': array([1.5, 0. ]), '_score': array([ True, False])}
    """
    infos: Info = {}
    for key, (places, values) in columns.items():
        infos[key] = _array(size, places, values)
        infos["_" + key] = _numbers(size, np.bool_, places, [True] * len(places))
    return infos


def _array(size: int, places: Sequence[int], values: list[Any]) -> np.ndarray | Info:
    first = values[0]
    kind = type(first)
    if kind in _NUMBERS or isinstance(first, _ARRAY_NUMBERS):
        return _numbers(size, kind, places, values)
    if isinstance(first, dict):
        # Recursive, as in Gymnasium: the inner keys get arrays and masks of their own.
        rows = dict(zip(places, values, strict=True))
        return merged(columns_of([rows.get(i, {}) for i in range(size)]), size)
    if isinstance(first, np.ndarray):
        return _fill(np.zeros((size, *first.shape), first.dtype), places, values)
    return _fill(np.empty(size, np.object_), places, values)


def _numbers(size: int, kind: Any, places: Sequence[int], values: list[Any]) -> np.ndarray:  # noqa: ANN401
    if len(places) == size:
        return np.array(values, kind)
    return _fill(np.zeros(size, kind), places, values)


def _fill(array: np.ndarray, places: Sequence[int], values: Iterable[Any]) -> np.ndarray:
    """Set the items at the places, one by one: numpy would turn sequences into dimensions."""
    # For the few items of a turn this is faster than to make an array of their indices.
    for place, value in zip(places, values, strict=True):
        array[place] = value
    return array


def kind_conflicts(kinds: dict[str, Kind], columns: Columns) -> dict[int, str]:
    """The infos in which a key has another type than before: a message by index.

    kinds: the kind of every known key; new ones are added.

    >>> sorted(kind_conflicts({"score": float}, columns_of([{"score": 1.5}, {"score": "high"}])))
    [1]
    """
    conflicts: dict[int, str] = {}
    for key, (places, values) in columns.items():
        known = kinds.setdefault(key, _kind(values[0]))
        # One comparison of all types is nearly always enough.
        # An array is never equal here: its kind has dtype and shape, which differ within a type.
        if set(map(type, values)) == {known}:
            continue
        for place, value in zip(places, values, strict=True):
            if _kind(value) != known:
                conflicts[place] = (
                    f"info[{key!r}] is {value!r}, of {_named(_kind(value))}, and was of "
                    f"{_named(known)} before"
                )
    return conflicts


def _kind(value: object) -> Kind:
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape)
    return type(value)


def _named(kind: Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
