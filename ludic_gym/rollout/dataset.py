"""dataset_tasks: the rows of a data set as tasks, shuffled, in epochs, in shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np

from ludic_gym.envs.core.base import TextEnv
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.pool import close
from ludic_gym.sampling import check_sampling
from ludic_gym.types import Sampling, Task


def dataset_tasks(
    env_id: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    shuffle_seed: int | None = None,
    epochs: int | None = None,
    shard: tuple[int, int] = (0, 1),
    start: int = 0,
    seed: int = 0,
    sampling: Sampling | None = None,
    max_turns: int = 32,
    attempts: int | None = None,
) -> Iterator[Task]:
    """Tasks of an environment with rows: in every epoch, each row once.

    shuffle_seed: seed of the order of the rows, another one in each epoch; None: their own order.
    epochs: passes over the rows; None: without end.
    shard: (i, n) for part i of n, such as one of n actors. The tasks of all parts are those of
        (0, 1), each in exactly one part.
    start: number of tasks that were taken before; they are skipped without being made, and the
        others are the same as without it.
    seed: the env seed of row r is `seed` + r in every epoch, so that it stays one task. The
        sampling seed of the g-th task of all shards is `seed` + g.
    kwargs, sampling, max_turns, attempts: as in `Task`.
    Raises ConfigError for an environment without rows, and for numbers that cannot work.

    >>> tasks = dataset_tasks("ludic/GSM8K-v0", shuffle_seed=1, epochs=2)
    >>> rows = [task.options["row"] for task in tasks]
    >>> len(rows), sorted(rows[:53]) == sorted(rows[53:]) == list(range(53))
    (106, True)
    """
    kwargs, sampling = dict(kwargs or {}), sampling or Sampling()
    check_sampling(sampling)
    part, parts = shard
    _check("shard", shard, 0 <= part < parts, "(i, n) with 0 <= i < n, such as (0, 4)")
    _check("epochs", epochs, epochs is None or epochs >= 1, "at least 1, or None for no end")
    _check("start", start, start >= 0, "the number of tasks that were taken, 0 or more")
    _check("seed", seed, seed >= 0, "0 or more")
    _check("shuffle_seed", shuffle_seed, (shuffle_seed or 0) >= 0, "0 or more, or None")
    _check("max_turns", max_turns, max_turns >= 1, "at least 1")
    rows = rows_of(env_id, kwargs)
    if rows is None:
        raise ConfigError(f"{env_id} has no rows but makes its tasks from seeds: give it seeds")
    task = Task(env_id=env_id, kwargs=kwargs, max_turns=max_turns, attempts=attempts)
    end = None if epochs is None else epochs * rows
    numbers = _numbers(part + parts * start, parts, end)
    return (
        replace(
            task,
            seed=seed + row,
            options={"row": row},
            sampling=replace(sampling, seed=seed + number),
        )
        for number, row in _with_rows(numbers, rows, shuffle_seed)
    )


def rows_of(env_id: str, kwargs: Mapping[str, Any]) -> int | None:
    """Number of rows of the environment; None if it has none."""
    env = gym.make(env_id, **kwargs)
    try:
        inner = env.unwrapped
        return inner.num_rows if isinstance(inner, TextEnv) else None
    finally:
        close(env)


def _numbers(first: int, step: int, end: int | None) -> Iterator[int]:
    return count(first, step) if end is None else iter(range(first, end, step))


def _with_rows(numbers: Iterator[int], rows: int, seed: int | None) -> Iterator[tuple[int, int]]:
    """Each number of a task with its row; numbers rise."""
    epoch, order = -1, np.arange(rows)
    for number in numbers:
        if seed is not None and number // rows != epoch:
            epoch = number // rows
            # From the epoch and not from the order before, so that a start in any epoch is exact.
            order = np.random.default_rng([seed, epoch]).permutation(rows)
        yield number, int(order[number % rows])


def _check(name: str, value: object, good: bool, wanted: str) -> None:
    if not good:
        raise ConfigError(f"{name} is {wanted}, got {value!r}")
