"""Tasks from the rows of a data set, and groups of samples of one task."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import TextEnv
from ludic_gym.errors import ConfigError
from ludic_gym.making import make_env
from ludic_gym.rollout.pool import close
from ludic_gym.sampling import check_sampling, derived_seed
from ludic_gym.types import Episode, Sampling, Task


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
    first = part + parts * start
    numbers = count(first, parts) if end is None else iter(range(first, end, parts))
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
    env = make_env(env_id, **kwargs)
    try:
        inner = env.unwrapped
        return inner.num_rows if isinstance(inner, TextEnv) else None
    finally:
        close(env)


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


def grouped(tasks: Iterable[Task], size: int) -> Iterator[Task]:
    """Each task `size` times in a row: same env seed, different sampling seeds, one group id.

    The sampling seeds are derived from the task's; without one they are random. The group id is a
    hash of all fields of the task and its position, so that no two groups share one.
    Raises ConfigError for a size below 1, and for a task without a seed.

    >>> tasks = list(grouped([Task(env_id="ludic/ConnectFour-v0", seed=3)], size=2))
    >>> [task.seed for task in tasks], len({task.group for task in tasks})
    ([3, 3], 1)
    """
    if size < 1:
        raise ConfigError(f"a group has at least 1 member, got size={size}")
    return (member for index, task in enumerate(tasks) for member in _group(task, size, index))


def _group(task: Task, size: int, index: int) -> Iterator[Task]:
    """The members of one group. index: position of the task in the iterable."""
    if task.seed is None:
        raise ConfigError(
            f"a group shares its env seed, but the task {index} of {task.env_id} has seed=None; "
            "give every task a seed"
        )
    # Not the global generator: equal seeds of two processes would make equal group ids.
    seed = secrets.randbits(63) if task.sampling.seed is None else task.sampling.seed
    whole = replace(task, sampling=replace(task.sampling, seed=seed))
    # With the index, because a data set may have the same row twice. A hash, because the fields may
    # be long, and a group id is stored with every item.
    fields = f"{index} {whole!r}".encode(errors="backslashreplace")
    group = hashlib.blake2b(fields, digest_size=16).hexdigest()
    for member in range(size):
        sampling = replace(task.sampling, seed=derived_seed(seed, member))
        yield replace(task, sampling=sampling, group=group)


async def by_group(episodes: AsyncIterator[Episode], size: int) -> AsyncIterator[list[Episode]]:
    """The episodes of each group together, as soon as all `size` members have ended or failed.

    Members are in the order of their tasks. Groups that are incomplete at the end of the stream
    come last. Memory grows with the number of groups that are open at once.

    >>> import asyncio
    >>> from ludic_gym import OraclePolicy, run_episodes
    >>> async def rewards(env_id):
    ...     tasks = grouped((Task(env_id=env_id, seed=seed) for seed in range(2)), size=3)
    ...     async for members in by_group(run_episodes(tasks, OraclePolicy), size=3):
    ...         print([m.rollouts[0].total_reward for m in members if m.error is None])
    >>> asyncio.run(rewards("ludic/Arithmetic-v0"))
    [1.0, 1.0, 1.0]
    [1.0, 1.0, 1.0]
    """
    waiting: dict[str, list[Episode]] = {}
    async for episode in episodes:
        members = waiting.setdefault(episode.task.group, [])
        members.append(episode)
        if len(members) == size:
            yield _in_order(waiting.pop(episode.task.group))
    for members in waiting.values():
        yield _in_order(members)


def _in_order(members: list[Episode]) -> list[Episode]:
    return sorted(members, key=lambda episode: episode.index)
