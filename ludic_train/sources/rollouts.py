"""Batches that are played when they are asked for."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from ludic_gym.errors import ConfigError
from ludic_gym.rollout.episodes import env_pool, run_episodes
from ludic_gym.rollout.groups import grouped
from ludic_gym.types import MakePolicy, Rollout, Task
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import CheckpointError, EmptyBatch
from ludic_train.metrics import Metrics, Stat, merge
from ludic_train.rows import (
    EMPTY_BATCHES_ALLOWED,
    episode_metrics,
    items_from,
    require_trainable,
    survivors,
)
from ludic_train.types import REWARDS, SAWBatch, SAWItem

# What is worth logging about rollouts; sums and counts, so that parts of a batch add up.
Reducer = Callable[[Sequence[Rollout]], Metrics]


@runtime_checkable
class Remembering(Protocol):
    """A credit assigner that keeps something from batch to batch."""

    def state_dict(self) -> dict[str, Any]:
        """What it keeps, as JSON can hold it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state` holds."""


class RolloutBatchSource:
    """Plays `groups_per_batch` tasks, each `group_size` times, and turns the rollouts into rows.

    tasks: read in order, as far as needed; must be seeded when group_size > 1, because the members
        of a group share the env's seed and differ in how they are sampled. Only if their sampling
        is seeded too can a run be repeated.
    algo: filters the rollouts (`preprocess`), gives them credit, and says whether dropped groups
        are replaced (`full_batches`) and solved tasks played again (`retire_at`).
    reducer: further metrics of all rollouts that were played, before filters.
    Failed episodes are left out, and their groups too if fewer than two members survive; when more
    than half of a batch failed, next_batch raises EpisodeError with the first failure.
    """

    def __init__(
        self,
        tasks: Iterator[Task],
        make_policy: MakePolicy,
        algo: RLAlgorithm,
        *,
        groups_per_batch: int,
        group_size: int = 1,
        concurrency: int = 256,
        reducer: Reducer | None = None,
    ) -> None:
        if groups_per_batch < 1 or group_size < 1:
            raise ConfigError(
                f"groups_per_batch={groups_per_batch}, group_size={group_size}; both must be >= 1"
            )
        self.tasks = tasks
        self.make_policy = make_policy
        self.algo = algo
        self.groups_per_batch = groups_per_batch
        self.group_size = group_size
        self.concurrency = concurrency
        self.reducer = reducer
        self.taken = 0
        # Making an env and checking its first steps costs as much as several short episodes.
        self._envs = env_pool(max_idle=concurrency)
        weakref.finalize(self, self._envs.close)
        self.retired: set[str] = set()

    async def next_batch(self) -> SAWBatch:
        """Rows of freshly played groups; plays on while the filters leave nothing.

        Raises EmptyBatch after many batches without a row, or when the tasks have run out.
        """
        kept: list[Rollout] = []
        parts: list[Metrics] = []
        for _ in range(EMPTY_BATCHES_ALLOWED):
            wanted = self.groups_per_batch - (_count_groups(kept) if self.algo.full_batches else 0)
            rollouts, metrics = await self._play(wanted)
            good = self.algo.preprocess(rollouts) if self.algo.preprocess else rollouts
            metrics["rollouts/kept"] = Stat(len(good), len(rollouts))
            parts.append(metrics)
            kept += good
            if kept and not self._falls_short(kept):
                return SAWBatch(items=tuple(self._items(kept)), metrics=merge(parts))
        raise EmptyBatch(
            f"{EMPTY_BATCHES_ALLOWED} batches of {self.groups_per_batch} groups left "
            f"{_count_groups(kept)} groups to train on: the others earned equal rewards or were "
            f"filtered. The mean reward is {merge(parts)['reward'].value:.3g}: if that is the best "
            "there is, the task is solved; if not, start from a policy that sometimes does better"
        )

    def state_dict(self) -> dict[str, Any]:
        """How many tasks were taken, and what is remembered of them."""
        credit = _remembering(self.algo.credit_assigner)
        kept = {} if credit is None else {"credit": credit.state_dict()}
        return {"taken": self.taken, "retired": sorted(self.retired), **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Skip the tasks that were taken already; `tasks` must be a fresh, equal iterator."""
        if "taken" not in state:
            raise CheckpointError(
                f"the checkpoint's source kept {sorted(state)}: that run learned from a queue; "
                "resume it with one"
            )
        skip = int(state["taken"]) - self.taken
        if skip < 0:
            raise ConfigError(f"cannot go back from task {self.taken} to task {state['taken']}")
        self.taken += sum(1 for _ in islice(self.tasks, skip))
        self.retired = set(state["retired"])
        if credit := _remembering(self.algo.credit_assigner):
            credit.load_state_dict(state["credit"])

    def _falls_short(self, kept: Sequence[Rollout]) -> bool:
        return self.algo.full_batches and _count_groups(kept) < self.groups_per_batch

    def _items(self, kept: Sequence[Rollout]) -> list[SAWItem]:
        weights = self.algo.credit_assigner(kept)
        return items_from(kept, weights, rewards=REWARDS in self.algo.attach)

    def _next_tasks(self, wanted: int) -> list[Task]:
        tasks: list[Task] = []
        for task in self.tasks:
            self.taken += 1
            if not self.retired or _name(task) not in self.retired:
                tasks.append(task)
            if len(tasks) == wanted:
                break
        if not tasks:
            raise EmptyBatch(
                f"the tasks ran out after {self.taken}, {len(self.retired)} of which are retired"
            )
        return tasks

    def _retire(self, rollouts: Sequence[Rollout], share: float) -> None:
        successes: dict[str, list[float]] = {}
        for rollout in rollouts:
            solved = float(bool(rollout.steps and rollout.steps[-1].info.get("success", False)))
            successes.setdefault(_name(rollout.task), []).append(solved)
        self.retired |= {n for n, each in successes.items() if sum(each) / len(each) >= share}

    async def _play(self, wanted: int) -> tuple[list[Rollout], Metrics]:
        tasks = self._next_tasks(wanted)
        requests = grouped(tasks, self.group_size) if self.group_size > 1 else iter(tasks)
        episodes = [
            episode
            async for episode in run_episodes(
                requests, self.make_policy, concurrency=self.concurrency, envs=self._envs
            )
        ]
        episodes.sort(key=lambda episode: episode.index)
        rollouts = survivors(episodes, self.group_size)
        # Before any filter: what is dropped for equal rewards may be untrainable for good.
        require_trainable(rollouts)
        if self.algo.retire_at is not None:
            self._retire(rollouts, self.algo.retire_at)
        metrics = episode_metrics(episodes)
        return rollouts, merge([metrics, self.reducer(rollouts) if self.reducer else {}])


def _remembering(credit_assigner: object) -> Remembering | None:
    return credit_assigner if isinstance(credit_assigner, Remembering) else None


def _count_groups(rollouts: Sequence[Rollout]) -> int:
    """Groups; a rollout that is in none counts as one."""
    named = {rollout.task.group for rollout in rollouts if rollout.task.group}
    return len(named) + sum(not rollout.task.group for rollout in rollouts)


def _name(task: Task) -> str:
    """What makes a task the same task when it comes again."""
    return json.dumps([task.env_id, dict(task.kwargs), task.seed, task.options], default=str)
