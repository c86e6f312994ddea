"""Where an env runs: on the event loop, or on a thread of its own if it says that it blocks.

An env whose calls take long says so with `metadata["blocking"] = True`.
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
        """What the env says about itself."""

    def close(self) -> None:
        """Release what the env holds."""


# One thread per env, so that an env may hold what belongs to a thread (a browser, a database).
_threads: WeakKeyDictionary[Closable, WorkerThread] = WeakKeyDictionary()


async def call(env: Closable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result, computed where the env runs."""
    if not env.metadata.get("blocking"):
        return function(*args, **kwargs)
    if env not in _threads:
        _threads[env] = WorkerThread("ludic-env")
    return await _threads[env].run(partial(function, *args, **kwargs))


def close(env: Closable) -> None:
    """Close the env; one that blocks is closed on its thread, after the call it is busy with."""
    thread = _threads.pop(env, None)
    if thread is None:
        env.close()
    else:
        thread.finish(env.close)
