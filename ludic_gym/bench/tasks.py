"""Tasks of a benchmark: every row of a data set once, or consecutive seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym

from ludic_gym.envs.core.base import TextEnv
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.groups import grouped
from ludic_gym.sampling import check_sampling
from ludic_gym.types import Sampling, Task

PROCEDURAL_EPISODES = 100


def bench_tasks(
    env_id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    episodes: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    max_turns: int = 32,
    samples: int = 1,
) -> tuple[Task, ...]:
    """Tasks that are the same on every call; task i has env seed and sampling seed `seed + i`.

    samples: episodes per task. They follow each other, share the env seed of the task, and have
        sampling seeds that are derived from the task's.

    An env with rows plays row i modulo their number, by default each once; any other env plays
    100 episodes by default.
    Raises ConfigError if there is nothing to play, or for a sampling that cannot work.
    """
    kwargs, sampling = dict(kwargs or {}), sampling or Sampling()
    check_sampling(sampling)
    rows = count_rows(env_id, kwargs)
    count = episodes if episodes is not None else rows or PROCEDURAL_EPISODES
    for name, value, least in (
        ("episodes", count, 1),
        ("seed", seed, 0),
        ("max_turns", max_turns, 1),
        ("samples", samples, 1),
    ):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    tasks = (
        Task(
            env_id=env_id,
            kwargs=kwargs,
            seed=seed + i,
            options=None if rows is None else {"row": i % rows},
            sampling=replace(sampling, seed=seed + i),
            max_turns=max_turns,
        )
        for i in range(count)
    )
    return tuple(tasks if samples == 1 else grouped(tasks, samples))


def count_rows(env_id: str, kwargs: Mapping[str, Any]) -> int | None:
    """Number of rows of the env; None for an env that generates its episodes."""
    env = gym.make(env_id, **kwargs)
    try:
        return env.unwrapped.num_rows if isinstance(env.unwrapped, TextEnv) else None
    finally:
        env.close()
