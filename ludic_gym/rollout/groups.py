"""Groups: several samples of the same task, for group-relative credit."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace

from ludic_gym.errors import ConfigError
from ludic_gym.sampling import derived_seed
from ludic_gym.types import Episode, Task


def grouped(tasks: Iterable[Task], size: int) -> Iterator[Task]:
    """Each task `size` times in a row: same env seed, different sampling seeds, one group id.

    The sampling seeds are derived from the task's; without one they are random. The group id is a
    hash of all fields of the task and its position, so that no two groups share one.
    Raises ConfigError for a size below 1, and for a task without a seed.

    >>> tasks = list(grouped([Task(env_id="ludic/Nim-v0", seed=3)], size=2))
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
    group = _group_id(replace(task, sampling=replace(task.sampling, seed=seed)), index)
    for member in range(size):
        sampling = replace(task.sampling, seed=derived_seed(seed, member))
        yield replace(task, sampling=sampling, group=group)


def _group_id(task: Task, index: int) -> str:
    # With the index, because a data set may have the same row twice.
    # A hash, because the fields may be long, and a group id is stored with every item.
    fields = f"{index} {task!r}".encode(errors="backslashreplace")
    return hashlib.blake2b(fields, digest_size=16).hexdigest()


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
