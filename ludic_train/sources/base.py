"""Interfaces of batch sources, pass rates of tasks, and the loop that fills a batch with groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ludic_gym.errors import ConfigError
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Metrics, Stat, merge
from ludic_train.rows import after_credit, filtered
from ludic_train.types import SAWBatch, Trajectory

if TYPE_CHECKING:
    from ludic_train.algorithms.presets import RLAlgorithm

# A source whose filter leaves nothing this often in a row will not recover by more of the same.
EMPTY_BATCHES_ALLOWED = 20


class BatchSource(Protocol):
    """Source of batches that can continue where it stopped."""

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch, with the filter and the credit of `algo`; never empty.

        Raises EmptyBatch where there is nothing left to train on.
        """

    def state_dict(self) -> dict[str, Any]:
        """State, as JSON can hold it, from which an equal source continues after this batch."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the source that returned `state` stopped."""


class NoBatches:
    """The source of a trainer whose batches are all given to `Trainer.update`."""

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """Raise ConfigError: there is none."""
        raise ConfigError("a Trainer without a batch_source has no batch to train on; use `update`")

    def state_dict(self) -> dict[str, Any]:
        """Return {}."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Progress of a trainer through batches, for a source that keeps data fresh.

    version: updates made so far. updates_per_batch: updates made from each batch.
    oldest_lag: updates by which rows lag at best. max_lag: the limit of the algorithm, or None.
    """

    version: int
    updates_per_batch: int
    oldest_lag: int
    max_lag: int | None


@runtime_checkable
class DurableSource(Protocol):
    """Source whose data waits elsewhere until it was learned from."""

    def claim(self) -> None:
        """Keep every other trainer from the data; called before a checkpoint is loaded.

        Raises Superseded where another trainer keeps this one from it.
        """

    async def begin(self, pace: Pace) -> None:
        """Start; called once, before the first batch. Raises ConfigError for an impossible pace."""

    async def trained(self, version: int) -> None:
        """Note that every batch given so far is in the params `version`.

        Called when the last update from a batch was made, and before each batch.
        """


class GroupFeed(Protocol):
    """Groups of rollouts, played now or elsewhere."""

    async def take(self, count: int) -> tuple[list[Trajectory], Metrics]:
        """Trajectories of the next `count` groups, and metrics of their episodes."""

    async def keep(self, groups: Collection[str]) -> None:
        """Note that, of the groups taken for this batch, only these are learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Groups of one batch: trajectories that passed the filter, all that were seen, metrics.

    learned: those of `kept` that are learned from.
    seen: without those of batches that were passed over.
    """

    kept: Sequence[Trajectory]
    learned: Sequence[Trajectory]
    seen: Sequence[Trajectory]
    metrics: Metrics


class TaskHistory:
    """Rollouts and successes of each task, over all its groups.

    retired: keys of tasks whose pass rate has reached `retire_at`; they are not played again
    (no-positive-resampling of ScaleRL, Khatri et al. 2025, arXiv:2510.13786).
    """

    def __init__(self) -> None:
        self.retired: dict[str, None] = {}
        self._plays: dict[str, list[int]] = {}

    def note(self, trajectories: Iterable[Trajectory], retire_at: float) -> list[str]:
        """Count the rollouts; keys of the tasks that are retired by them."""
        changed = {}
        for trajectory in trajectories:
            changed[trajectory.task] = plays = self._plays.setdefault(trajectory.task, [0, 0])
            plays[0] += trajectory.success
            plays[1] += 1
        # Over all groups of a task, since the rate of a single small group is mostly luck.
        rates = {task: passes / plays for task, (passes, plays) in changed.items()}
        solved = [t for t, rate in rates.items() if rate >= retire_at and t not in self.retired]
        self.retired |= dict.fromkeys(solved)
        return solved

    def state_dict(self) -> dict[str, Any]:
        """The counts, as JSON can hold them."""
        return {
            "plays": {task: list(plays) for task, plays in self._plays.items()},
            "retired": list(self.retired),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the counts of `state`."""
        self._plays = {task: [int(a), int(b)] for task, (a, b) in state["plays"].items()}
        self.retired = dict.fromkeys(state["retired"])


async def gathered_groups(
    feed: GroupFeed,
    algo: RLAlgorithm,
    groups: int,
    note: Callable[[Sequence[Trajectory]], Metrics],
    *,
    spare: int = 0,
) -> Gathered:
    """The next `groups` groups, filtered; further ones while none is left.

    Where the algorithm wants full batches, groups that its filter drops are replaced by others.
    note: gets the trajectories of each batch without a row, before further ones are taken.
    spare: number of such batches in a row that are allowed beyond the usual ones. Raises EmptyBatch
        after as many.
    """
    selected: list[Trajectory] = []
    seen: list[Trajectory] = []
    parts: list[Metrics] = []
    allowed = EMPTY_BATCHES_ALLOWED + spare
    for _ in range(allowed):
        # A full batch is topped up; any other is played anew, so that its size has no bias towards
        # groups that pass the filter.
        missing = groups - count_groups(selected) if algo.full_batches else groups
        trajectories, metrics = await feed.take(missing)
        good, alone = filtered(trajectories, algo)
        parts.append({**metrics, **alone, "rollouts/kept": Stat(len(good), len(trajectories))})
        selected += good
        seen += trajectories
        full = count_groups(selected) >= groups if algo.full_batches else True
        # Groups whose episodes all failed have no trajectory at all.
        learned = after_credit(selected, algo)
        groups_with_rows = {t.group for t in learned if t.rows}
        ended = full and bool(groups_with_rows)
        if not groups_with_rows:
            parts.append(note(seen))
            seen = []
        if algo.full_batches or not ended:
            await feed.keep(groups_with_rows)
        if ended:
            return Gathered(kept=selected, learned=learned, seen=seen, metrics=merge(parts))
    reward = merge(parts).get("reward")
    mean = "unknown" if reward is None else f"{reward.value:.3g}"
    raise EmptyBatch(
        f"{allowed} batches of {groups} groups left {count_groups(selected)} groups to "
        "train on: the others earned equal rewards or were filtered. "
        f"The mean reward is {mean}: if that is the best there is, the task is "
        "solved; if not, start from a policy that sometimes does better"
    )


def count_groups(trajectories: Sequence[Trajectory]) -> int:
    """Number of groups; a trajectory without a group counts as one."""
    named = {trajectory.group for trajectory in trajectories if trajectory.group}
    return len(named) + sum(not trajectory.group for trajectory in trajectories)
