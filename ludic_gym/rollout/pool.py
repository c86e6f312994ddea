"""EnvPool: envs that are made once per id and arguments, and used again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from typing import Generic, TypeVar

from ludic_gym.rollout.threads import Closable, close
from ludic_gym.types import Task

E = TypeVar("E", bound=Closable)


class EnvPool(Generic[E]):
    """Pool of envs; at most `max_idle` wait to be lent, the longest unused is closed first."""

    def __init__(self, make: Callable[[Task], E], max_idle: int) -> None:
        self._make = make
        self._max_idle = max_idle
        # In the order of their return.
        self._idle: list[tuple[Hashable, E]] = []

    def lend(self, task: Task) -> E:
        """An env for the task that is not in use."""
        key = _key(task)
        # From the end, because tasks that follow each other are mostly for the same env.
        for place in reversed(range(len(self._idle))):
            if self._idle[place][0] == key:
                return self._idle.pop(place)[1]
        return self._make(task)

    def give_back(self, task: Task, env: E) -> None:
        """Return an env that can be used again."""
        key = _key(task)
        if key is None:
            close(env)
            return
        self._idle.append((key, env))
        if len(self._idle) > self._max_idle:
            close(self._idle.pop(0)[1])

    def close(self) -> None:
        """Close all envs that are not lent."""
        # An error of one env must not leave the others open.
        with ExitStack() as closing:
            while self._idle:
                closing.callback(close, self._idle.pop()[1])


def _key(task: Task) -> Hashable:
    """A key that is equal for tasks with interchangeable envs; None for unhashable arguments."""
    key = (task.env_id, _frozen(task.kwargs) if task.kwargs else ())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: object) -> Hashable:
    # The type is part of the key: 1, 1.0 and True are equal, but may make different envs.
    if isinstance(value, Mapping):
        return (type(value), *((key, _frozen(value[key])) for key in value))
    if isinstance(value, list | tuple):
        return (type(value), *map(_frozen, value))
    return (type(value), value)
