"""Batches from rows that exist: demonstrations, recorded rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_train.types import SAWBatch, SAWItem


class OfflineBatchSource:
    """Shuffled passes over `items`, `batch_size` rows at a time.

    Every pass sees each row once; the rows that do not fill a batch at its end open the next pass.
    The order is a function of `seed` and the pass alone.
    """

    def __init__(self, items: Sequence[SAWItem], *, batch_size: int, seed: int = 0) -> None:
        if not 1 <= batch_size <= len(items):
            raise ConfigError(
                f"batch_size={batch_size} with {len(items)} rows; it must be between 1 and that"
            )
        self.items = items
        self.batch_size = batch_size
        self.seed = seed
        self.taken = 0

    async def next_batch(self) -> SAWBatch:
        """The next `batch_size` rows."""
        rows = [self._row_at(self.taken + k) for k in range(self.batch_size)]
        self.taken += self.batch_size
        return SAWBatch(items=tuple(rows))

    def state_dict(self) -> dict[str, Any]:
        """How many rows were taken."""
        return {"taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after `state["taken"]` rows."""
        self.taken = int(state["taken"])

    def _row_at(self, position: int) -> SAWItem:
        epoch, offset = divmod(position, len(self.items))
        return self.items[_permutation(self.seed, epoch, len(self.items))[offset]]


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng((seed, epoch)).permutation(size).tolist())
