"""Infos of many environments as one dictionary of arrays, in Gymnasium's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Info = dict[str, Any]
# By key: the indices of the infos that have it, and the values there.
Columns = Mapping[str, tuple[list[int], list[Any]]]
# A type; for arrays, dtype and shape as well.
Kind = object
_NUMBERS = (bool, int, float)
_ARRAY_NUMBERS = (np.number, np.bool_)


def columns_of(infos: Sequence[Info]) -> Columns:
    """The infos by key instead of by environment: the indices that have it, and their values.

    >>> columns_of([{"success": True}, {}])
    {'success': ([0], [True])}
    """
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for place, info in enumerate(infos):
        # Most infos are empty.
        if info:
            for key, value in info.items():
                if key in columns:
                    places, values = columns[key]
                    places.append(place)
                    values.append(value)
                else:
                    columns[key] = [place], [value]
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
    masked: list[int] = []
    mask = np.empty(0)
    for key, (places, values) in columns.items():
        infos[key] = _array(size, places, values)
        # Most keys come with others, in the same infos. Each has a mask of its own, which its
        # reader may change.
        if places == masked:
            mask = mask.copy()
        else:
            masked, mask = places, _mask(size, places)
        infos["_" + key] = mask
    return infos


def _mask(size: int, places: list[int]) -> np.ndarray:
    if len(places) == size:
        return np.ones(size, np.bool_)
    mask = np.zeros(size, np.bool_)
    # For the few items of a turn this is faster than to make an array of their indices.
    for place in places:
        mask[place] = True
    return mask


def _array(size: int, places: list[int], values: list[Any]) -> np.ndarray | Info:
    first = values[0]
    kind = type(first)
    # Numbers and texts first: most values are.
    if kind in _NUMBERS:
        if len(places) == size:
            return np.array(values, kind)
        array = np.zeros(size, kind)
    elif kind is str:
        array = np.empty(size, np.object_)
    elif isinstance(first, dict):
        # Recursive, as in Gymnasium: the inner keys get arrays and masks of their own.
        rows = dict(zip(places, values, strict=True))
        return merged(columns_of([rows.get(i, {}) for i in range(size)]), size)
    elif isinstance(first, np.ndarray):
        array = np.zeros((size, *first.shape), first.dtype)
    elif isinstance(first, _ARRAY_NUMBERS):
        array = np.zeros(size, kind)
    else:
        array = np.empty(size, np.object_)
    # One by one: numpy would turn sequences into dimensions.
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
        # One comparison of all types is nearly always enough.
        # An array is never equal here: its kind has dtype and shape, which differ within a type.
        types: list[Kind] = list(map(type, values))
        if types.count(kinds.get(key)) == len(types):
            continue
        known = kinds.setdefault(key, _kind(values[0]))
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
