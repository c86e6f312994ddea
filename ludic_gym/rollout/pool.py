"""Envs of rollouts: their calls, and a pool that makes them once per id and arguments.

Calls are made on the event loop, or on a thread per env if it has `metadata["blocking"] = True`, as
an env does whose calls take long. Coroutines that a call returns are awaited on the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from ludic_gym.concurrency import WorkerThread, result_of, run_to_end
from ludic_gym.errors import EnvError
from ludic_gym.types import Task

P = ParamSpec("P")
T = TypeVar("T")
AnyEnv = gym.Env[Any, Any]


class Closable(Protocol):
    """Any Gymnasium or PettingZoo env."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The env's metadata."""

    def close(self) -> Awaitable[None] | None:
        """Release the env's resources."""


# One thread per env, because an env may hold objects that are tied to a thread (a browser, a
# database connection).
_threads: WeakKeyDictionary[Closable, WorkerThread] = WeakKeyDictionary()


async def call(
    env: Closable, function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call the function on the env's thread, or here if the env does not block; its result.

    function: a method of the env, or of an env inside it; a coroutine function is awaited. Raises
        the errors of the function.
    A call that is cancelled continues on its thread; the next call of the env waits for it. A
    coroutine is cancelled itself.
    """
    if not env.metadata.get("blocking"):
        result = function(*args, **kwargs)
        if type(result) is tuple:
            # The usual case: nothing to await.
            return result
    else:
        if env not in _threads:
            _threads[env] = WorkerThread("ludic-env")
        result = await _threads[env].run(partial(function, *args, **kwargs))
    return await result_of(result)


def close(env: Closable) -> None:
    """Close the env; one that blocks is closed on its thread, after its current call.

    A `close` that is a coroutine runs to its end here, or as a task of a running event loop.
    """
    thread = _threads.pop(env, None)
    if thread is None:
        run_to_end(env.close())
    else:
        thread.finish(lambda: run_to_end(env.close()))


async def aclose(env: Closable) -> None:
    """Close the env as `close` does; wait for a `close` that is a coroutine."""
    if env in _threads:
        close(env)
    else:
        await result_of(env.close())


E = TypeVar("E", bound=Closable)


class EnvPool(Generic[E]):
    """Pool of envs; at most `max_idle` wait to be lent, the longest unused is closed first.

    make: makes an env for the env_id and the kwargs of a task.
    Envs are shared by tasks with equal env_id and kwargs. Those with unhashable kwargs are made for
    every episode. An env that failed is not given back, so that a broken one is never lent.
    """

    def __init__(self, make: Callable[[Task], E], max_idle: int) -> None:
        self._make = make
        self._max_idle = max_idle
        # In the order of their return.
        self._idle: list[tuple[Hashable, E]] = []

    def lend(self, task: Task) -> E:
        """An env for the task that is not in use. Raises the errors of `make`."""
        key = _key(task)
        # From the end, because tasks that follow each other are mostly for the same env.
        for place in reversed(range(len(self._idle))):
            if self._idle[place][0] == key:
                return self._idle.pop(place)[1]
        return self._make(task)

    def give_back(self, task: Task, env: E) -> None:
        """Return an env that can be used again. task: the one that it was lent for."""
        key = _key(task)
        if key is None:
            close(env)
            return
        self._idle.append((key, env))
        if len(self._idle) > self._max_idle:
            close(self._idle.pop(0)[1])

    async def aclose(self) -> None:
        """Close all envs that are not lent; wait for those whose `close` is a coroutine."""
        async with AsyncExitStack() as closing:
            while self._idle:
                closing.push_async_callback(aclose, self._idle.pop()[1])

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


def is_async(env: AnyEnv) -> bool:
    """True if `reset` or `step` of the innermost env is a coroutine function, or it says so.

    The attribute `asynchronous` says so, which a TextEnv sets where its hooks are coroutines.

    >>> is_async(gym.make("ludic/ConnectFour-v0"))
    False
    """
    # mypy takes the `__hash__` of instances for that of the class.
    return _has_coroutines(type(env.unwrapped))  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _has_coroutines(kind: type[AnyEnv]) -> bool:
    # By class and kept, because every episode needs it. TextEnv itself is not imported here:
    # commands that play nothing load this file.
    says_so: object = getattr(kind, "asynchronous", False)
    return says_so is True or any(map(iscoroutinefunction, (kind.reset, kind.step)))


def require_sync(env: AnyEnv, user: str) -> None:
    """Raise EnvError for an asynchronous env. user: what would call it, for the message."""
    if is_async(env):
        raise EnvError(
            f"{user} cannot await {env}, whose methods are coroutines; play it with run_episodes, "
            "run_episode or evaluate, or write its methods without async and set "
            'metadata["blocking"]'
        )


def awaitable_env(env: AnyEnv) -> AnyEnv:
    """The env; an asynchronous one without Gymnasium's checker, which cannot await.

    Raises EnvError for an asynchronous env inside another wrapper of Gymnasium that reads results.
    """
    if not is_async(env):
        return env
    while isinstance(env, PassiveEnvChecker):
        env = env.env
    wrapper = env
    while isinstance(wrapper, gym.Wrapper):
        if isinstance(wrapper.env, PassiveEnvChecker):
            wrapper.env = wrapper.env.env
            continue
        kind = type(wrapper)
        foreign = kind.__module__.startswith("gymnasium.") and kind is not OrderEnforcing
        if foreign and (kind.step is not gym.Wrapper.step or kind.reset is not gym.Wrapper.reset):
            raise EnvError(
                f"{kind.__name__} cannot await {env.unwrapped}, whose methods are coroutines; "
                "register it without max_episode_steps and further wrappers, and limit its turns "
                "by Task(max_turns=...)"
            )
        wrapper = wrapper.env
    return env
