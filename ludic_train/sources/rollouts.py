"""Batches that are played when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.rollout import grouped, run_episodes
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.algorithms import RLAlgorithm
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Metrics, Stat, Total
from ludic_train.saw import SAWBatch, items_from

# A source whose filters leave nothing this often in a row will not recover by playing on.
EMPTY_BATCHES_ALLOWED = 20


class RolloutBatchSource:
    """Plays `groups_per_batch` tasks, each `group_size` times, and turns the rollouts into rows.

    tasks: read in order, as far as needed; must be seeded when group_size > 1, because the members
        of a group share the env's seed and differ in how they are sampled. Only if their sampling
        is seeded too can a run be repeated.
    algo: filters the rollouts (`preprocess`) and gives them credit.
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
        self.taken = 0

    async def next_batch(self) -> SAWBatch:
        """Rows of freshly played groups; plays on while the filters leave nothing.

        Raises EmptyBatch after many batches without a row, or when the tasks have run out.
        """
        for _ in range(EMPTY_BATCHES_ALLOWED):
            rollouts, metrics = await self._play()
            kept = self.algo.preprocess(rollouts) if self.algo.preprocess else rollouts
            items = items_from(kept, self.algo.credit_assigner(kept))
            if items:
                metrics["rollouts/kept"] = Stat(len(kept), len(rollouts))
                return SAWBatch(items=tuple(items), metrics=metrics)
        raise EmptyBatch(
            f"{EMPTY_BATCHES_ALLOWED} batches of {self.groups_per_batch} groups left no row to "
            "train on: every group earned equal rewards or was filtered. The mean reward is "
            f"{metrics['reward'].value:.3g}: if that is the best there is, the task is solved; if "
            "not, start from a policy that sometimes does better"
        )

    def state_dict(self) -> dict[str, Any]:
        """How many tasks were taken."""
        return {"taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Skip the tasks that were taken already; `tasks` must be a fresh, equal iterator."""
        skip = int(state["taken"]) - self.taken
        if skip < 0:
            raise ConfigError(f"cannot go back from task {self.taken} to task {state['taken']}")
        self.taken += sum(1 for _ in islice(self.tasks, skip))

    async def _play(self) -> tuple[list[Rollout], Metrics]:
        tasks = list(islice(self.tasks, self.groups_per_batch))
        if not tasks:
            raise EmptyBatch(f"the tasks ran out after {self.taken}")
        self.taken += len(tasks)
        requests = grouped(tasks, self.group_size) if self.group_size > 1 else iter(tasks)
        episodes = [
            episode
            async for episode in run_episodes(
                requests, self.make_policy, concurrency=self.concurrency
            )
        ]
        episodes.sort(key=lambda episode: episode.index)
        return _survivors(episodes, self.group_size), _episode_metrics(episodes)


def _survivors(episodes: Sequence[Episode], group_size: int) -> list[Rollout]:
    failed = [episode for episode in episodes if episode.error is not None]
    if len(failed) > len(episodes) / 2:
        raise EpisodeError(
            f"{len(failed)} of {len(episodes)} episodes failed; the first: {failed[0].error}"
        )
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    if group_size == 1 or not failed:
        return rollouts
    sizes: dict[str, int] = {}
    for rollout in rollouts:
        sizes[rollout.task.group] = sizes.get(rollout.task.group, 0) + 1
    return [rollout for rollout in rollouts if sizes[rollout.task.group] >= 2]


def _episode_metrics(episodes: Sequence[Episode]) -> Metrics:
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    steps = [step for rollout in rollouts for step in rollout.steps]
    ends = [rollout.steps[-1].info for rollout in rollouts if rollout.steps]
    calls = [call for step in steps for call in step.decision.completions]
    return {
        "reward": Stat.of([rollout.total_reward for rollout in rollouts]),
        "success": Stat.of([float(info["success"]) for info in ends if "success" in info]),
        "turns": Stat.of([len(rollout.steps) for rollout in rollouts]),
        "tokens/completion": Stat.of([len(call.completion_ids or ()) for call in calls]),
        "tokens/sampled": Total(sum(len(call.completion_ids or ()) for call in calls)),
        "episodes/failed": Stat.of([float(episode.error is not None) for episode in episodes]),
        "episodes": Total(len(episodes)),
    }
