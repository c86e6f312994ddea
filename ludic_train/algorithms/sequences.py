"""Rows of one rollout taken together: a rollout is one row, or several that know each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludic_train.types import SAWItem


class Row(Protocol):
    """Part of a `SAWItem` that says how rows belong together."""

    @property
    def action_mask(self) -> NDArray[np.bool_]:
        """[T], True at the tokens that are trained on."""

    @property
    def group(self) -> str:
        """Group of the row's rollout; "" for none."""

    @property
    def rollout(self) -> str:
        """Id shared by the rows of one rollout; "" for a row that is a rollout by itself."""


def sequence_ids(items: Sequence[Row]) -> list[int]:
    """Number of each item's rollout, from 0 in order of appearance."""
    numbers: dict[str, int] = {}
    # A row without an id is a rollout by itself; ids of `rows_from` hold no tab.
    names = [item.rollout or f"\t{i}" for i, item in enumerate(items)]
    return [numbers.setdefault(name, len(numbers)) for name in names]


def by_sequence(items: Sequence[Row]) -> list[list[int]]:
    """Indices of the rows of each rollout, in order of play."""
    found: list[list[int]] = []
    for i, number in enumerate(sequence_ids(items)):
        if number == len(found):
            found.append([])
        found[number].append(i)
    return found


def refined_by_rollout(
    items: Sequence[SAWItem], refine: Callable[[Sequence[SAWItem]], Sequence[SAWItem]]
) -> list[SAWItem]:
    """The items in their order, with the rows of each rollout replaced by `refine(rows)`."""
    refined = list(items)
    for members in by_sequence(items):
        for i, item in zip(members, refine([items[i] for i in members]), strict=True):
            refined[i] = item
    return refined


def with_weight(item: SAWItem, weight: NDArray[np.floating]) -> SAWItem:
    """The item with other weights at its sampled tokens, given in order."""
    return replace(item, weight=spread(item, weight))


def spread(item: SAWItem, values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Values of the sampled tokens at their places in the row, float32 [T]; 0 elsewhere."""
    whole = np.zeros(len(item.input_ids), np.float32)
    whole[item.action_mask] = values
    return whole
