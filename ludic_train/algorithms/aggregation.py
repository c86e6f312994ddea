"""The share of each action token in an update: pure functions over all items of it.

A `Loss` is a sum over tokens of `scale * l`. These functions compute the scales, over ALL items of
one optimizer update at once, so micro-batches, packing and ranks cannot change the result.

A sequence is a rollout, however many rows it became: one where every prompt extends the one before,
several where the context rewrites history. Sequences without action tokens count nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import ConfigError, DataError
from ludic_train.algorithms.sequences import Row, sequence_ids

Scales = list[NDArray[np.float32]]


Aggregation = Callable[[Sequence[Row]], Scales]
"""From all rows of an update to a float32 array per row: a scale for each action token."""


def token_mean(items: Sequence[Row]) -> Scales:
    """1 / N at every token, N the action tokens of the update (DAPO, arXiv:2503.14476)."""
    tokens = _token_counts(items)
    return _spread([1 / max(sum(tokens), 1)] * len(tokens), tokens)


def sequence_mean(items: Sequence[Row]) -> Scales:
    """Mean over R rollouts of the mean over a rollout's n tokens: 1 / (R n) (arXiv:2402.03300)."""
    tokens, sequences = _token_counts(items), sequence_ids(items)
    per_sequence = np.bincount(sequences, tokens, 1)
    many = max(np.count_nonzero(per_sequence), 1)
    return _spread([1 / max(many * per_sequence[s], 1) for s in sequences], tokens)


def prompt_mean(items: Sequence[Row]) -> Scales:
    """Mean over P groups of the mean over a group's n tokens: 1 / (P n).

    The aggregation of ScaleRL (arXiv:2510.13786). Raises DataError for an item without a group.
    """
    tokens = _token_counts(items)
    per_group: Counter[str] = Counter()
    for item, n in zip(items, tokens, strict=True):
        if not item.group:
            raise DataError(
                "prompt_mean averages by group and an item has none; give tasks a group"
            )
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
            raise ConfigError(
                f"ConstantLength.length is {self.length}; it must be at least 1 token"
            )

    def __call__(self, items: Sequence[Row]) -> Scales:
        """One array of equal scales per item."""
        tokens = _token_counts(items)
        many = int(np.count_nonzero(np.bincount(sequence_ids(items), tokens, 1)))
        return _spread([1 / (max(many, 1) * self.length)] * len(tokens), tokens)


def _token_counts(items: Sequence[Row]) -> list[int]:
    return [int(np.count_nonzero(item.action_mask)) for item in items]


def _spread(scales: Sequence[float], tokens: Sequence[int]) -> Scales:
    return [np.full(n, scale, np.float32) for scale, n in zip(scales, tokens, strict=True)]
