"""Batches from data that exists: demonstrations, recorded rollouts, rows made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import EmptyBatch
from ludic_train.rows import rows_from
from ludic_train.types import SAWBatch, SAWItem, Trajectory


class OfflineBatchSource:
    """Shuffled passes over rows, `batch_size` at a time.

    data: rollouts, whose rows get the filter and the credit of the trainer's algorithm, over all of
        them, when the first batch is made; or rows, which keep their weights.
    Every pass sees each row once; the rows that do not fill a batch at its end open the next pass.
    The order is a function of `seed` and the pass alone.
    """

    def __init__(
        self,
        data: Sequence[Rollout] | Sequence[Trajectory] | Sequence[SAWItem],
        *,
        batch_size: int,
        seed: int = 0,
    ) -> None:
        if batch_size < 1 or not data:
            raise ConfigError(f"batch_size={batch_size} with {len(data)} rollouts or rows")
        self.batch_size = batch_size
        self.seed = seed
        self.taken = 0
        self._data = data
        self._rows: list[SAWItem] = []

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next `batch_size` rows.

        Raises EmptyBatch where the algorithm keeps no rollout, ConfigError where the rows are fewer
        than a batch.
        """
        if not self._rows:
            self._rows = self._made(algo)
        rows = [self._row_at(self.taken + k) for k in range(self.batch_size)]
        self.taken += self.batch_size
        return SAWBatch(items=tuple(rows))

    def state_dict(self) -> dict[str, Any]:
        """Number of rows taken."""
        return {"taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after `state["taken"]` rows."""
        self.taken = int(state["taken"])

    def _made(self, algo: RLAlgorithm) -> list[SAWItem]:
        rows = [item for item in self._data if isinstance(item, SAWItem)]
        rollouts = [item for item in self._data if not isinstance(item, SAWItem)]
        rows += rows_from(rollouts, algo)
        if not rows:
            best = max(rollout.total_reward for rollout in rollouts)
            raise EmptyBatch(
                f"{algo.name} keeps none of {len(rollouts)} rollouts; the best earned {best:.3g}"
            )
        if len(rows) < self.batch_size:
            raise ConfigError(
                f"batch_size={self.batch_size} with {len(rows)} rows; it must be between 1 and that"
            )
        return rows

    def _row_at(self, position: int) -> SAWItem:
        epoch, offset = divmod(position, len(self._rows))
        return self._rows[_permutation(self.seed, epoch, len(self._rows))[offset]]


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng((seed, epoch)).permutation(size).tolist())
