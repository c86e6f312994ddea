"""Calls of envs: on the event loop, or on a thread per env if it has `metadata["blocking"]`.

An env whose calls take long sets `metadata["blocking"] = True`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from ludic_gym.concurrency import WorkerThread

P = ParamSpec("P")
T = TypeVar("T")


class Closable(Protocol):
    """Any Gymnasium or PettingZoo env."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The env's metadata."""

    def close(self) -> None:
        """Release the env's resources."""


# One thread per env, because an env may hold objects that are tied to a thread (a browser, a
# database connection).
_threads: WeakKeyDictionary[Closable, WorkerThread] = WeakKeyDictionary()


async def call(env: Closable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function on the env's thread, or here if the env does not block; its result."""
    if not env.metadata.get("blocking"):
        return function(*args, **kwargs)
    if env not in _threads:
        _threads[env] = WorkerThread("ludic-env")
    return await _threads[env].run(partial(function, *args, **kwargs))


def close(env: Closable) -> None:
    """Close the env; one that blocks is closed on its thread, after its current call."""
    thread = _threads.pop(env, None)
    if thread is None:
        env.close()
    else:
        thread.finish(env.close)
