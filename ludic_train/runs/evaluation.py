"""Episodes that are played to be measured or imitated, not learned from by reward."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import EpisodeError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.runs.config import Recipe
from ludic_train.runs.tasks import evaluation_tasks

CONCURRENCY = 256


async def evaluate(
    recipe: Recipe,
    make_policy: MakePolicy,
    episodes: int,
    keep: Callable[[Episode], None] | None = None,
) -> dict[str, float]:
    """Success rate, mean reward and shares of outcomes of each set of evaluation tasks.

    The keys are "set/success", "set/reward" and "set/OUTCOME" for each outcome of the recipe.

    keep: called with every episode. Raises EpisodeError if an episode fails.
    """
    shares: dict[str, float] = {}
    for name, tasks in evaluation_tasks(recipe, episodes).items():
        result = await run_bench(tasks, make_policy, concurrency=CONCURRENCY, on_episode=keep)
        if result.errors:
            index, reason = result.errors[0]
            raise EpisodeError(f"{len(result.errors)} of {name} failed; task {index}: {reason}")
        shares |= {f"{name}/success": result.success_rate, f"{name}/reward": result.mean_reward}
        for outcome in recipe.outcomes:
            shares[f"{name}/{outcome}"] = result.outcomes.get(outcome, 0) / result.episodes
    return shares


async def play(tasks: Iterable[Task], make_policy: MakePolicy) -> list[Rollout]:
    """A rollout per task, in the order of the tasks. Raises EpisodeError if one fails."""
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]
