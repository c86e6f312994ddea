"""Tasks of a run, to learn from, to imitate and to measure, and episodes of the latter two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import EpisodeError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Episode, MakePolicy, Rollout, Sampling, Task
from ludic_train.runs.config import Recipe

CONCURRENCY = 256
# Far above the seeds of episodes that are learned from, so that they never meet.
DEMONSTRATIONS_FROM, EVALUATIONS_FROM = 2**61, 2**60
# More tasks than a run plays, so that runs of different seeds share none.
SEEDS_PER_RUN = 1_000_000


def training_tasks(recipe: Recipe, seed: int) -> Iterator[Task]:
    """Tasks to learn from, without end; other ones for every seed of a run.

    Equal arguments give equal tasks, which is how a resumed run skips those that it has played.
    """
    for number in count(seed * SEEDS_PER_RUN):
        yield _task(recipe, recipe.kwargs, number, Sampling(max_tokens=recipe.max_tokens))


def demonstration_tasks(recipe: Recipe, seed: int, episodes: int) -> list[Task]:
    """Tasks for the demonstrator, the first of a seed; none for a recipe without demonstrations."""
    if recipe.demonstrations is None:
        return []
    first = DEMONSTRATIONS_FROM + seed * SEEDS_PER_RUN
    kwargs = recipe.demonstrations.kwargs
    return [_task(recipe, kwargs, n, Sampling()) for n in range(first, first + episodes)]


def evaluation_tasks(recipe: Recipe, episodes: int) -> dict[str, list[Task]]:
    """The first tasks of each set of evaluation tasks, by name; the same for all runs.

    episodes: tasks per set. A larger number keeps the tasks of a smaller one, and adds others.
    """
    # No seed of a run in them, so that runs are compared on the same episodes.
    numbers = range(EVALUATIONS_FROM, EVALUATIONS_FROM + episodes)
    found = {}
    for name, tasks in recipe.evals.items():
        sampling = Sampling(temperature=tasks.temperature, max_tokens=recipe.max_tokens)
        found[name] = [_task(recipe, tasks.kwargs, number, sampling) for number in numbers]
    return found


def _task(recipe: Recipe, kwargs: Mapping[str, Any], seed: int, sampling: Sampling) -> Task:
    sampling = replace(sampling, seed=seed)
    return Task(env_id=recipe.env_id, kwargs=kwargs, seed=seed, sampling=sampling)


async def evaluate(
    recipe: Recipe,
    make_policy: MakePolicy,
    episodes: int,
    keep: Callable[[Episode], None] | None = None,
) -> dict[str, float]:
    """Success rate, mean reward and shares of outcomes of each set of evaluation tasks.

    The keys are "set/success", "set/reward" and "set/OUTCOME" for each outcome of the recipe.

        await evaluate(recipe, make_policy, 200)    # {"perfect/success": 0.0, ...}

    episodes: of each set. keep: called with every episode as it ends.
    Raises EpisodeError if an episode fails: a rate over the others would be of easier tasks.
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
    """Rollouts of the tasks, in their order: one each, or one per agent of a match.

    Raises EpisodeError if one fails, after all have ended.
    """
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]
