"""Share of each action token in an update, and the rows that belong to one rollout.

A `Loss` is a sum over tokens of `scale * l`. The aggregations compute the scales, over ALL items of
one optimizer update at once, so micro-batches, packing and ranks cannot change the result. A
sequence is a rollout, however many rows it became; one without action tokens counts nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import ConfigError, DataError
from ludic_train.types import SAWItem

Scales = list[NDArray[np.float32]]
Aggregation = Callable[[Sequence[SAWItem]], Scales]
"""From all rows of an update to a float32 array per row: a scale for each action token."""


def token_mean(items: Sequence[SAWItem]) -> Scales:
    """1 / N at every token, N the action tokens of the update (DAPO, arXiv:2503.14476)."""
    tokens = _token_counts(items)
    # The max() everywhere here: an update of no tokens has no scales, but must not divide by 0.
    return _spread([1 / max(sum(tokens), 1)] * len(tokens), tokens)


def weighted_token_mean(items: Sequence[SAWItem]) -> Scales:
    """1 / N at every token, N the action tokens of the update whose weight is not 0.

    For imitation, where a weight of 0 leaves tokens out.
    """
    tokens = _token_counts(items)
    many = sum(int(np.count_nonzero(item.weight[item.action_mask])) for item in items)
    return _spread([1 / max(many, 1)] * len(tokens), tokens)


def sequence_mean(items: Sequence[SAWItem]) -> Scales:
    """Mean over R rollouts of the mean over a rollout's n tokens: 1 / (R n) (arXiv:2402.03300)."""
    tokens, sequences = _token_counts(items), sequence_ids(items)
    per_sequence = np.bincount(sequences, tokens, 1)
    many = max(np.count_nonzero(per_sequence), 1)
    return _spread([1 / max(many * per_sequence[s], 1) for s in sequences], tokens)


def prompt_mean(items: Sequence[SAWItem]) -> Scales:
    """Mean over P groups of the mean over a group's n tokens: 1 / (P n).

    The aggregation of ScaleRL (arXiv:2510.13786). Raises DataError for an item without a group.
    """
    tokens = _token_counts(items)
    per_group: Counter[str] = Counter()
    for item, n in zip(items, tokens, strict=True):
        if not item.group:
            raise DataError("prompt_mean averages by group and an item has none; group the tasks")
        # A group without tokens must not enter the Counter: P counts its keys.
        if n:
            per_group[item.group] += n
    return _spread([1 / max(len(per_group) * per_group[i.group], 1) for i in items], tokens)


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """Every token 1 / (R `length`), R the rollouts: no length bias (Dr. GRPO, arXiv:2503.20783).

    length: tokens, usually the most that a rollout may have; the same for all updates.
    """

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError(f"ConstantLength.length is {self.length}; it must be 1 token or more")

    def __call__(self, items: Sequence[SAWItem]) -> Scales:
        """One array of equal scales per item."""
        tokens = _token_counts(items)
        many = int(np.count_nonzero(np.bincount(sequence_ids(items), tokens, 1)))
        return _spread([1 / (max(many, 1) * self.length)] * len(tokens), tokens)


def sequence_ids(items: Sequence[SAWItem]) -> list[int]:
    """Number of each item's rollout, from 0 in order of appearance."""
    numbers: dict[str, int] = {}
    # A row without an id is a rollout by itself; ids of `rows_from` hold no tab.
    names = [item.rollout or f"\t{i}" for i, item in enumerate(items)]
    return [numbers.setdefault(name, len(numbers)) for name in names]


def by_sequence(items: Sequence[SAWItem]) -> list[list[int]]:
    """Indices of the rows of each rollout, in order of play."""
    rows: dict[int, list[int]] = {}
    for i, number in enumerate(sequence_ids(items)):
        rows.setdefault(number, []).append(i)
    return list(rows.values())


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
    return replace(item, weight=at_sampled(item, weight))


def at_sampled(item: SAWItem, values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Values of the sampled tokens at their places in the row, float32 [T]; 0 elsewhere."""
    whole = np.zeros(len(item.input_ids), np.float32)
    whole[item.action_mask] = values
    return whole


def _token_counts(items: Sequence[SAWItem]) -> list[int]:
    return [int(np.count_nonzero(item.action_mask)) for item in items]


def _spread(scales: Sequence[float], tokens: Sequence[int]) -> Scales:
    # Scales stay in float64 until here, so that each is rounded to float32 once.
    return [np.full(n, scale, np.float32) for scale, n in zip(scales, tokens, strict=True)]
