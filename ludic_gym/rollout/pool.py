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
        # By the time of their return, oldest first: dicts keep the order of insertion.
        self._idle: dict[Hashable, list[E]] = {}
        self._idle_count = 0

    def lend(self, task: Task) -> E:
        """An env for the task that is not in use."""
        idle = self._idle.get(_key(task))
        if not idle:
            return self._make(task)
        self._idle_count -= 1
        return idle.pop()

    def give_back(self, task: Task, env: E) -> None:
        """Return an env that can be used again."""
        key = _key(task)
        if key is None:
            close(env)
            return
        self._idle.setdefault(key, []).append(env)
        self._idle_count += 1
        if self._idle_count > self._max_idle:
            self._close_oldest()

    def close(self) -> None:
        """Close all envs that are not lent."""
        with ExitStack() as closing:
            for envs in self._idle.values():
                for env in envs:
                    closing.callback(close, env)
        self._idle.clear()
        self._idle_count = 0

    def _close_oldest(self) -> None:
        key, envs = next(iter(self._idle.items()))
        close(envs.pop(0))
        self._idle_count -= 1
        if not envs:
            del self._idle[key]


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
