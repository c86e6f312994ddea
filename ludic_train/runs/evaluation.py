"""Episodes of a run that are measured or imitated, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import EpisodeError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.runs.config import RunConfig
from ludic_train.runs.recipe import Recipe
from ludic_train.runs.tasks import evaluation_tasks

CONCURRENCY = 256


async def evaluate(
    recipe: Recipe,
    config: RunConfig,
    make_policy: MakePolicy,
    episodes: int,
    keep: Callable[[Episode], None] | None = None,
) -> dict[str, float]:
    """Success rate, mean reward and shares of outcomes of each set of evaluation tasks.

        await evaluate(recipe, config, make_policy, 200)    # {"perfect_first/success": 0.0, ...}

    episodes: of each set. keep: called with every episode as it ends.
    The keys are "set/success" with its 95% interval "set/success_low" and "set/success_high",
    "set/reward", "set/cut_off" (share of replies that reached their limit) and
    "set/OUTCOME" for each outcome of the recipe.
    Raises EpisodeError if an episode fails: a rate over the others would be of easier tasks.
    """
    shares: dict[str, float] = {}
    for name, tasks in evaluation_tasks(recipe, config, episodes).items():
        result = await run_bench(tasks, make_policy, concurrency=CONCURRENCY, on_episode=keep)
        if result.errors:
            index, reason = result.errors[0]
            raise EpisodeError(f"{len(result.errors)} of {name} failed; task {index}: {reason}")
        low, high = result.success_interval
        shares |= {
            f"{name}/success": result.success_rate,
            f"{name}/success_low": low,
            f"{name}/success_high": high,
            f"{name}/reward": result.mean_reward,
            f"{name}/cut_off": result.cut_off / max(result.turns, 1),
        }
        for outcome in recipe.outcomes:
            shares[f"{name}/{outcome}"] = result.outcomes.get(outcome, 0) / result.episodes
    return shares


async def play(tasks: Iterable[Task], make_policy: MakePolicy) -> list[Rollout]:
    """Rollouts of the tasks, in their order: one each, or one per agent of a match.

    Raises EpisodeError if one fails, after all have ended.
    """
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]
