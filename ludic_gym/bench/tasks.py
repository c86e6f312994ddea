"""Tasks of a benchmark: every row of a data set once, or consecutive seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.rollout.dataset import rows_of
from ludic_gym.rollout.groups import grouped
from ludic_gym.sampling import check_sampling
from ludic_gym.types import Sampling, Task

PROCEDURAL_EPISODES = 100
# Most environments have a lower limit of their own.
MAX_TURNS = 1000


def bench_tasks(
    env_id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    episodes: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    max_turns: int = MAX_TURNS,
    attempts: int | None = None,
    samples: int = 1,
) -> tuple[Task, ...]:
    """Tasks that are the same on every call; task i has env seed and sampling seed `seed + i`.

    max_turns: turns after which an episode is truncated.
    attempts: replies without an action after which an episode fails; None: 1 in a single-turn
        environment, else no limit.
    samples: how often each task is played; its samples follow each other and share its env seed.
        The first has the task's sampling seed, the others have seeds that are derived from it.

    An env with rows plays row i modulo their number, by default each once; any other env plays
    100 episodes by default.
    Raises ConfigError if there is nothing to play, or for a sampling that cannot work.

    >>> [task.seed for task in bench_tasks("ludic/Arithmetic-v0", episodes=3, seed=7)]
    [7, 8, 9]
    """
    # Copies, because the tasks outlive the call and the caller may change its dict.
    kwargs, sampling = dict(kwargs or {}), sampling or Sampling()
    check_sampling(sampling)
    rows = rows_of(env_id, kwargs)
    count = episodes if episodes is not None else rows or PROCEDURAL_EPISODES
    for name, value, least in (
        ("episodes", count, 1),
        ("seed", seed, 0),
        ("max_turns", max_turns, 1),
        ("attempts", 1 if attempts is None else attempts, 1),
        ("samples", samples, 1),
    ):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    tasks = (
        Task(
            env_id=env_id,
            kwargs=kwargs,
            seed=seed + i,
            # Rows are chosen by number, not drawn, so that each is played equally often.
            options=None if rows is None else {"row": i % rows},
            sampling=replace(sampling, seed=seed + i),
            max_turns=max_turns,
            attempts=attempts,
        )
        for i in range(count)
    )
    return tuple(tasks if samples == 1 else _sampled(tasks, samples))


def _sampled(tasks: Iterable[Task], samples: int) -> Iterator[Task]:
    for index, task in enumerate(grouped(tasks, samples)):
        # As without samples, so that samples can be added to a run that has one of each task.
        is_first = index % samples == 0
        yield replace(task, sampling=replace(task.sampling, seed=task.seed)) if is_first else task
