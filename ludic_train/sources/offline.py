"""Batches from existing data: demonstrations, rollouts of other runs, rows made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import Completion, Rollout
from ludic_train.algorithms.aggregation import by_sequence
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import CheckpointError, EmptyBatch
from ludic_train.rows import rows_from
from ludic_train.types import SAWBatch, SAWItem, Trajectory

# Such as `lambda rollout: with_token_ids(rollout, tokenizer, FullDialog())`.
Render = Callable[[Rollout], Rollout]
MakeRows = Callable[[], Sequence[SAWItem]]


class OfflineBatchSource:
    """Shuffled passes over rollouts, `batch_size` at a time.

    data: rollouts, whose rows get the filter and the credit of the trainer's algorithm, over all of
        them, when the first batch is made; or rows, which keep their weights; or functions that
        make the rows of a rollout each, at least one, called when a batch first takes it.
    A rollout is the rows of one id, which stay together, as do those of a pair of
    `preference_rows`; a row without an id is one by itself. Every pass sees each once; those that
    do not fill a batch at its end open the next pass.
    The order is a function of `seed` and the pass alone.
    Raises ConfigError for a batch size below 1, and for no data.
    """

    def __init__(
        self,
        data: Sequence[Rollout] | Sequence[Trajectory] | Sequence[SAWItem] | Sequence[MakeRows],
        *,
        batch_size: int,
        seed: int = 0,
    ) -> None:
        if batch_size < 1 or not data:
            raise ConfigError(
                f"batch_size={batch_size} with {len(data)} rollouts or rows; both >= 1"
            )
        self.batch_size = batch_size
        self.seed = seed
        self.taken = 0
        self._data = data
        self._rollouts: list[Sequence[SAWItem] | MakeRows] = []

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The rows of the next `batch_size` rollouts.

        Raises EmptyBatch where the algorithm keeps no rollout, ConfigError where there are fewer
        than a batch.
        """
        # Not in the constructor, which does not know the algorithm.
        if not self._rollouts:
            rollouts: list[Sequence[SAWItem] | MakeRows] = [
                item for item in self._data if callable(item)
            ]
            rows = [item for item in self._data if isinstance(item, SAWItem)]
            played = [r for r in self._data if not isinstance(r, SAWItem) and not callable(r)]
            # Credit over all of them at once: a batch's worth is drawn anew in every pass.
            rows += rows_from(played, algo) if played else []
            if played and not rows:
                best = max(rollout.total_reward for rollout in played)
                raise EmptyBatch(
                    f"{algo.name} keeps none of {len(played)} rollouts; the best earned {best:.3g}"
                )
            rollouts += [[rows[i] for i in numbers] for numbers in by_sequence(rows)]
            if len(rollouts) < self.batch_size:
                raise ConfigError(
                    f"batch_size={self.batch_size} with {len(rollouts)} rollouts; it must be "
                    "between 1 and that"
                )
            self._rollouts = rollouts
        # A rollout's place follows from its number alone, so a resumed run needs no other state.
        taken = [self._rollout_at(self.taken + k) for k in range(self.batch_size)]
        self.taken += self.batch_size
        return SAWBatch(items=tuple(row for rows in taken for row in rows))

    def state_dict(self) -> dict[str, Any]:
        """Number of rollouts taken."""
        return {"taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after `state["taken"]` rollouts. Raises CheckpointError for another's state."""
        if state.keys() != {"taken"}:
            raise CheckpointError(
                f"the checkpoint's source kept {sorted(state)}: that run did not learn from rows "
                "and rollouts that were there; resume it with its own kind of source"
            )
        self.taken = int(state["taken"])

    def _rollout_at(self, position: int) -> Sequence[SAWItem]:
        """Rows of the rollout at a position of the endless sequence of passes."""
        epoch, offset = divmod(position, len(self._rollouts))
        number = _permutation(self.seed, epoch, len(self._rollouts))[offset]
        rows = self._rollouts[number]
        if callable(rows):
            rows = self._rollouts[number] = rows()
        if not epoch or not rows[0].rollout:
            return rows
        # A batch may hold the end of a pass and the same rollout at the beginning of the next: as
        # one of twice the tokens, ratios and margins of whole rollouts would be wrong.
        return [replace(row, rollout=f"{row.rollout}\t{epoch}") for row in rows]


# A batch needs its own pass and perhaps the next; other sources may share the cache.
@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng((seed, epoch)).permutation(size).tolist())


def recorded_rollouts(
    rollouts: Iterable[Rollout], *, render: Render | None = None
) -> list[Rollout]:
    """Rollouts of another run, fit to be learned from by an `OfflineBatchSource`.

        rollouts = recorded_rollouts(read_rollouts("results/ludic.jsonl"))
        source = OfflineBatchSource(rollouts, batch_size=32)

    Recorded tokens are taken as they are, so the model must have the tokenizer of the one that was
    recorded; `render` makes those of rollouts without. Their versions count the updates of another
    run, and are left out. Log-probs stay where they are of the policy's own distribution
    (temperature above 0, and the sampling masks of top_p, top_k and min_p known); losses that need
    them refuse rows without.
    """
    recorded = []
    for rollout in rollouts:
        calls = [call for step in rollout.steps for call in step.decision.completions]
        if render is not None and not (calls and all(call.completion_ids for call in calls)):
            recorded.append(render(rollout))
            continue
        steps = []
        for step in rollout.steps:
            completions = tuple(map(_recorded, step.decision.completions))
            steps.append(replace(step, decision=replace(step.decision, completions=completions)))
        recorded.append(replace(rollout, steps=tuple(steps)))
    return recorded


def _recorded(call: Completion) -> Completion:
    """The call without facts that mean nothing in another run."""
    is_known = call.sampling_mask is not None or not leaves_out_tokens(call.sampling)
    if call.sampling.temperature > 0 and is_known:
        return replace(call, policy_version=None, versions=None)
    # Log-probs of greedy sampling, or of unknown masks, are of another distribution.
    sampling = replace(call.sampling, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0)
    return replace(call, policy_version=None, versions=None, logprobs=None, sampling=sampling)
