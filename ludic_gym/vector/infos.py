"""Infos of many environments as one dictionary of arrays, in Gymnasium's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Info = dict[str, Any]
# A type; for arrays, dtype and shape as well.
Kind = object
_NUMBERS = (bool, int, float)
_ARRAY_NUMBERS = (np.number, np.bool_)
# Made once: NumPy takes as long to find a type for a class as to make a small array.
_OBJECTS, _FLAGS = np.dtype(np.object_), np.dtype(np.bool_)


def merged(
    infos: Sequence[Info], kinds: dict[str, Kind] | None = None
) -> tuple[Info, dict[int, str]]:
    """One array per key, and under "_key" a mask of the environments that have it; conflicts.

    Numbers become arrays of their type, with 0 for missing ones; arrays are stacked, dictionaries
    merged recursively. All other values are in arrays of objects, with None for missing ones.
    infos: one per environment.
    kinds: see `kind_conflicts`, whose result is the second one; with conflicts no array is made.
        Without kinds, values take the type of the first one with their key.

    >>> merged([{"score": 1.5}, {}])
    ({'score': array([1.5, 0. ]), '_score': array([ True, False])}, {})
    """
    size, known = len(infos), {} if kinds is None else kinds
    together: Info = {}
    columns: dict[str, tuple[Kind, Any, np.ndarray]] = {}
    nested: list[str] = []
    unchecked = kinds is not None
    # One loop, which writes each value where it is found: to list or to check the values of each
    # key beforehand takes longer than to make the arrays.
    for place, info in enumerate(infos):
        for key, value in info.items():
            if key in columns:
                kind, column, mask = columns[key]
            else:
                kind, column = known.get(key), _empty(size, key, value)
                mask = np.zeros(size, _FLAGS)
                columns[key] = kind, column, mask
                together[key], together["_" + key] = column, mask
                if isinstance(column, list):
                    nested.append(key)
            if unchecked and type(value) is not kind:
                if conflicts := kind_conflicts(known, infos):
                    return {}, conflicts
                unchecked = False
            column[place] = value
            mask[place] = True
    for key in nested:
        together[key], _ = merged(together[key])
    return together, {}


def _empty(size: int, key: str, first: object) -> np.ndarray | list[Info]:
    """An array for values of the key like the first, or a list for dictionaries."""
    kind = type(first)
    # Texts and numbers first: most values are. An observation is an object, of any type.
    if kind is str or key == "final_obs":
        return np.empty(size, _OBJECTS)
    if kind in _NUMBERS:
        return np.zeros(size, kind)
    if isinstance(first, dict):
        return [{}] * size
    if isinstance(first, np.ndarray):
        return np.zeros((size, *first.shape), first.dtype)
    return np.zeros(size, kind) if isinstance(first, _ARRAY_NUMBERS) else np.empty(size, _OBJECTS)


def kind_conflicts(kinds: dict[str, Kind], infos: Sequence[Info]) -> dict[int, str]:
    """The infos in which a key has another type than before: a message by index.

    kinds: the kind of every known key; new ones are added.

    >>> sorted(kind_conflicts({"score": float}, [{"score": 1.5}, {"score": "high"}]))
    [1]
    """
    conflicts: dict[int, str] = {}
    for place, info in enumerate(infos):
        for key, value in info.items():
            kind = _kind(value)
            known = kinds.setdefault(key, kind)
            if kind != known:
                conflicts[place] = (
                    f"info[{key!r}] is {value!r}, of {_named(kind)}, and was of {_named(known)} "
                    "before"
                )
    return conflicts


def _kind(value: object) -> Kind:
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape)
    return type(value)


def _named(kind: Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
