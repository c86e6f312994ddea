"""Waiting for several coroutines at once, and for threads that may never return."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Calls = SimpleQueue[Callable[[], object] | None]


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order. The first error cancels the others and is raised."""
    waiting = list(coroutines)
    if len(waiting) == 1:
        return [await waiting[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancelled(tasks)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until all of it has ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class WorkerThread:
    """Runs calls one after the other on a thread that ends with this object.

    A call that never returns holds up neither the event loop nor the end of the program, as it
    would in a ThreadPoolExecutor.
    """

    def __init__(self, name: str) -> None:
        self._calls: _Calls = SimpleQueue()
        threading.Thread(target=_serve, args=[self._calls], name=name, daemon=True).start()
        self._end = weakref.finalize(self, self._calls.put, None)

    async def run(self, function: Callable[[], T]) -> T:
        """What the function returns or raises."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put(partial(_answer, answer, function))
        return await answer

    def post(self, function: Callable[[], object]) -> None:
        """Call the function, which raises nothing; nobody waits for it."""
        self._calls.put(function)

    def finish(self, last: Callable[[], object]) -> None:
        """Make a last call after those that wait; nobody waits for it."""
        self._calls.put(last)
        self._end()


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        # A call that is over must not keep alive what it belongs to, perhaps the worker itself.
        del call


def _answer(answer: asyncio.Future[T], function: Callable[[], T]) -> None:
    settle: Callable[[], None]
    try:
        settle = partial(answer.set_result, function())
    except BaseException as error:
        settle = partial(answer.set_exception, _settable(error))

    def deliver() -> None:
        if not answer.done():
            settle()

    # The loop may have been closed in the meantime, after the call was given up.
    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(deliver)


def _settable(error: BaseException) -> BaseException:
    """The error itself, except for StopIteration, which futures refuse (as generators do)."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("the call raised StopIteration")
    wrapped.__cause__ = error
    return wrapped
