"""What a benchmark plays: every row of a dataset once, or seeds in a row."""

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

    samples: how often each task is played; its samples follow each other, share its env seed and
        have sampling seeds that are derived from the task's.

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
    """Rows the env plays from; None for an env that makes its episodes up."""
    env = gym.make(env_id, **kwargs)
    try:
        return env.unwrapped.num_rows if isinstance(env.unwrapped, TextEnv) else None
    finally:
        env.close()
