"""Tasks of a run: to learn from, to imitate, to measure. Their seeds never meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from ludic_gym.types import Sampling, Task
from ludic_train.runs.config import Recipe

# Far above the seeds of episodes that are learned from.
DEMONSTRATIONS_FROM, EVALUATIONS_FROM = 2**61, 2**60
SEEDS_PER_RUN = 1_000_000


def training_tasks(recipe: Recipe, seed: int) -> Iterator[Task]:
    """Tasks to learn from, without end; other ones for every seed of a run."""
    for number in count(seed * SEEDS_PER_RUN):
        yield Task(
            env_id=recipe.env_id,
            kwargs=recipe.kwargs,
            seed=number,
            sampling=Sampling(max_tokens=recipe.max_tokens, seed=number),
        )


def demonstration_tasks(recipe: Recipe, seed: int, episodes: int) -> list[Task]:
    """Tasks for the demonstrator, the first of a seed."""
    if recipe.demonstrations is None:
        return []
    first = DEMONSTRATIONS_FROM + seed * SEEDS_PER_RUN
    kwargs = recipe.demonstrations.kwargs
    return [
        Task(env_id=recipe.env_id, kwargs=kwargs, seed=number, sampling=Sampling(seed=number))
        for number in range(first, first + episodes)
    ]


def evaluation_tasks(recipe: Recipe, episodes: int) -> dict[str, list[Task]]:
    """The first tasks of each set of evaluation tasks, by name; the same for all runs."""
    numbers = range(EVALUATIONS_FROM, EVALUATIONS_FROM + episodes)
    return {
        name: [
            Task(
                env_id=recipe.env_id,
                kwargs=tasks.kwargs,
                seed=number,
                sampling=Sampling(
                    temperature=tasks.temperature, max_tokens=recipe.max_tokens, seed=number
                ),
            )
            for number in numbers
        ]
        for name, tasks in recipe.evals.items()
    }
