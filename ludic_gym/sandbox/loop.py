"""The event loop of all sandboxes, on a thread of its own.

Gym environments step synchronously, from any thread, with or without asyncio. Sandboxes therefore
cannot belong to a caller's event loop: it may be missing, or end before a program does.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.memory import remove_own_groups

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_LOCK = threading.Lock()
_ABANDONED: list[asyncio.AbstractEventLoop | None] = []
_loop: asyncio.AbstractEventLoop | None = None


def sandbox_loop() -> asyncio.AbstractEventLoop:
    """The loop; its thread starts at first use and ends with the process."""
    global _loop
    # Two threads would make two loops, and a process of one cannot be awaited on the other.
    with _LOCK:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="ludic-sandbox", daemon=True).start()
        return _loop


async def on_sandbox_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on the sandboxes' loop and await its result on the caller's.

    A cancelled caller cancels the coroutine there. The coroutine's errors are raised here.
    """
    loop = sandbox_loop()
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def on_loop(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorator of a coroutine method, which then runs on the sandboxes' loop for any caller."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await on_sandbox_loop(method(self, *args, **kwargs))

    return run


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Result of a sandbox's coroutine, for callers that cannot await.

    Works on every thread, also inside a running event loop, which it blocks. Ctrl-C cancels the
    coroutine. Raises SandboxError on the sandboxes' own thread, where it would wait forever.

        result = run_blocking(sandbox.run(Program(source="print(1)")))
    """
    loop = sandbox_loop()
    with suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            coroutine.close()
            raise SandboxError(
                "run_blocking was called by a coroutine of a sandbox; await it there"
            )
    result = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return result.result()
    # KeyboardInterrupt too, which would leave the coroutine and its program running.
    except BaseException:
        result.cancel()
        raise


class Held(Protocol):
    """Owner of processes on the sandboxes' loop."""

    async def close(self) -> None:
        """End the processes."""

    def renew(self) -> None:
        """Drop the processes in a fork: they belong to the parent."""


HELD: set[Held] = set()
"""Owners that are closed at exit, and renewed in forks."""


def _close_all() -> None:
    if _loop:
        for thing in list(HELD):
            run_blocking(thing.close())
        remove_own_groups()


def _forget() -> None:
    # A fork has the loop's memory, but not its thread. Closing the loop would unregister the
    # parent's processes from the shared epoll, so a reference keeps it from being collected.
    global _loop, _LOCK
    _ABANDONED.append(_loop)
    _loop, _LOCK = None, threading.Lock()
    for thing in list(HELD):
        thing.renew()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget)
