"""Envs of rollouts: their calls, and a pool that makes them once per id and arguments.

Calls that are known to be quick are made on the event loop: those of this library's environments,
and of any env with `metadata["blocking"] = False`. So are those of asynchronous envs, which are
awaited. Every other env has a thread of its own, on which the pool makes it, and on which it is
called and closed, so that no other episode waits for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import ExitStack
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from ludic_gym.concurrency import WorkerThread, result_of, run_to_end
from ludic_gym.errors import EnvError
from ludic_gym.types import Task

P = ParamSpec("P")
T = TypeVar("T")
AnyEnv = gym.Env[Any, Any]
# Modules of envs and wrappers whose calls take microseconds, unless their metadata says otherwise.
QUICK = ("ludic_gym.envs.", "ludic_gym.wrappers.", "gymnasium.wrappers.common")
CLOSE_S = 10.0
"""Seconds that are waited for an env to close; the thread of one that takes longer is left."""


class Closable(Protocol):
    """Any Gymnasium or PettingZoo env."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The env's metadata."""

    @property
    def unwrapped(self) -> Any:  # noqa: ANN401
        """The env below all wrappers."""

    def close(self) -> Awaitable[None] | None:
        """Release the env's resources."""


E = TypeVar("E", bound=Closable)
# The thread of each env, None for one that is called on the event loop. By id, because an env may
# have no hash. One thread per env, because an env may hold objects that are tied to a thread (a
# browser, a database connection).
_threads: dict[int, WorkerThread | None] = {}


def is_quick(env: Closable) -> bool:
    """True for an env that is called on the event loop.

    >>> is_quick(gym.make("ludic/ConnectFour-v0")), is_quick(gym.make("FrozenLake-v1"))
    (True, False)
    """
    is_blocking = env.metadata.get("blocking")
    if is_blocking is not None:
        return not is_blocking
    # mypy takes the `__hash__` of instances for that of the class, here and below.
    if _has_coroutines(type(env.unwrapped)):  # type: ignore[arg-type]
        return True
    layer: object = env
    while isinstance(layer, gym.Wrapper) and type(layer).__module__.startswith(QUICK):
        layer = layer.env
    return type(layer).__module__.startswith(QUICK)


async def call(
    env: Closable, function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call the function where the env is called; its result.

    function: a method of the env, or of an env inside it; a coroutine function is awaited. Raises
        the errors of the function.
    A call that is cancelled continues on its thread; the next call of the env waits for it. A
    coroutine is cancelled itself.
    """
    thread = _threads[id(env)] if id(env) in _threads else _first_thread(env)
    if thread is None:
        result = function(*args, **kwargs)
        if type(result) is tuple:
            # The usual case: nothing to await.
            return result
    else:
        result = await thread.run(partial(function, *args, **kwargs))
    return await result_of(result)


def _first_thread(env: Closable, thread: WorkerThread | None = None) -> WorkerThread | None:
    """The thread of an env before its first call. thread: the one that it was made on."""
    chosen = None if is_quick(env) else thread or WorkerThread("ludic-env")
    _threads[id(env)] = chosen
    # Before another object can have its id.
    weakref.finalize(env, _threads.pop, id(env), None).atexit = False
    return chosen


def is_made_on_loop(entry_point: object) -> bool:
    """True for an entry point of Gymnasium's registry whose envs are made on the event loop.

    entry_point: a class, a function, or "module:name" of one. Those of functions are not.
    """
    if isinstance(entry_point, str):
        if entry_point.startswith(QUICK):
            return True
        entry_point = load_env_creator(entry_point)
    if not (isinstance(entry_point, type) and issubclass(entry_point, gym.Env)):
        return False
    is_quick = entry_point.metadata.get("blocking") is False
    return is_quick or _has_coroutines(entry_point)  # type: ignore[arg-type]


async def make_env(make: Callable[[], E], *, on_loop: bool) -> E:
    """An env, made here or on the thread on which it will be called.

    If this is cancelled, an env that is made later is closed on its thread.
    """
    if on_loop:
        return make()
    thread, made = WorkerThread("ludic-env"), list[E]()

    def close_late() -> None:
        for env in made:
            run_to_end(env.close())

    try:
        await thread.run(lambda: made.append(make()))
    except asyncio.CancelledError:
        thread.finish(close_late)
        raise
    (env,) = made
    _first_thread(env, thread)
    return env


def close(*envs: Closable) -> None:
    """Close the envs on their threads, or here if they have none.

    Waits for all together up to `CLOSE_S` seconds, and not for one whose last call still runs. A
    `close` that is a coroutine runs to its end, or as a task of a running event loop.
    """
    endings: list[threading.Thread] = []

    def close_one(env: Closable) -> None:
        thread = _threads.pop(id(env), None)
        if thread is None:
            run_to_end(env.close())
            return
        is_busy = thread.is_busy
        ending = thread.finish(lambda: run_to_end(env.close()))
        if not is_busy:
            endings.append(ending)

    # An error of one env must not leave the others open.
    with ExitStack() as closing:
        for env in envs:
            closing.callback(close_one, env)
    deadline = time.monotonic() + CLOSE_S
    for ending in endings:
        ending.join(max(0.0, deadline - time.monotonic()))


async def aclose(env: Closable) -> None:
    """Close the env where it is called, and wait for it, with a warning after `CLOSE_S` seconds.

    An env whose last call still runs is closed after that, without waiting.
    """
    thread = _threads.pop(id(env), None)
    if thread is None:
        await result_of(env.close())
    elif thread.is_busy:
        thread.finish(lambda: run_to_end(env.close()))
    else:
        try:
            async with asyncio.timeout(CLOSE_S) as limit:
                await result_of(await thread.run(env.close))
        except TimeoutError:
            # The env or a client of it may have a time limit of its own.
            if not limit.expired():
                raise
            warnings.warn(f"{env}: close() takes longer than {CLOSE_S:g} s", stacklevel=2)
        finally:
            thread.finish()


class EnvPool(Generic[E]):
    """Pool of envs; at most `max_idle` wait to be lent, the longest unused is closed first.

    make: makes an env for the env_id and the kwargs of a task. on_loop: true for tasks whose envs
        are made on the event loop.
    Envs are shared by tasks with equal env_id and kwargs. Those with unhashable kwargs are made for
    every episode. An env that failed is not given back, so that a broken one is never lent.
    """

    def __init__(
        self, make: Callable[[Task], E], max_idle: int, *, on_loop: Callable[[Task], bool]
    ) -> None:
        self._make = make
        self._max_idle = max_idle
        self._on_loop = on_loop
        # In the order of their return.
        self._idle: list[tuple[Hashable, E]] = []

    def idle(self, task: Task) -> E | None:
        """An env for the task that waits to be used again, if there is one."""
        key = _key(task)
        # From the end, because tasks that follow each other are mostly for the same env.
        for place in reversed(range(len(self._idle))):
            if self._idle[place][0] == key:
                return self._idle.pop(place)[1]
        return None

    async def make(self, task: Task) -> E:
        """A new env for the task. Raises the errors of `make`."""
        return await make_env(partial(self._make, task), on_loop=self._on_loop(task))

    async def give_back(self, task: Task, env: E) -> None:
        """Return an env that can be used again. task: the one that it was lent for."""
        key = _key(task)
        if key is None:
            await aclose(env)
            return
        self._idle.append((key, env))
        if len(self._idle) > self._max_idle:
            await aclose(self._idle.pop(0)[1])

    async def aclose(self) -> None:
        """Close all envs that are not lent, at the same time. Raises the first error."""
        idle = [env for _, env in self._idle]
        self._idle.clear()
        # An error of one env must not leave the others open.
        for error in await asyncio.gather(*map(aclose, idle), return_exceptions=True):
            if error is not None:
                raise error

    def close(self) -> None:
        """Close all envs that are not lent."""
        idle = [env for _, env in self._idle]
        self._idle.clear()
        close(*idle)


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
            "run_episode or evaluate, or write its methods without async"
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
