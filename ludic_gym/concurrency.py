"""Concurrent coroutines, calls on threads that may never return, and errors as values."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
# Tasks that no caller waits for: asyncio itself keeps no reference to a task.
_unfinished: set[asyncio.Task[Any]] = set()
_Calls = SimpleQueue[Callable[[], object] | None]


class Caught(AbstractContextManager["Caught"]):
    """Block that keeps an error of these kinds in `error`, instead of raising it.

    For code of a user (an env, a policy, a tool), which may raise anything, and whose error is a
    result that others read.
    """

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.error: BaseException | None = None
        self._kinds = kinds

    @property
    def text(self) -> str:
        """The class and the message of the error; "" without one."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, self._kinds) else None
        return self.error is not None


def closing_error_text(failure: Caught) -> str:
    """Description of an error in closing an env, after another one; "" for none."""
    return failure.text and f"; closing its env raised {failure.text}"


async def result_of(result: T | Awaitable[T]) -> T:
    """The result itself; of an awaitable, its result."""
    return await result if isinstance(result, Awaitable) else result


def run_to_end(result: object) -> None:
    """Run an awaitable result to its end, or as a task of the running event loop if there is one.

    Anything else is a result already.
    """
    if not isinstance(result, Awaitable):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(result_of(result))
        return
    task = loop.create_task(result_of(result))
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)


async def gather_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all coroutines; their results in order. The first error cancels the others."""
    waiting = list(coroutines)
    # A task for a single coroutine would cost more than many a call.
    if len(waiting) == 1:
        return [await waiting[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until all have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class WorkerThread:
    """A thread that runs calls one after the other and ends with this object.

    A call that never returns blocks neither the event loop nor the end of the program, unlike in a
    ThreadPoolExecutor.
    """

    def __init__(self, name: str) -> None:
        # SimpleQueue, because the finalizer may put at any point of the program, also inside a put.
        # The thread holds the queue and not this object, which could otherwise never be collected.
        self._calls: _Calls = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=[self._calls], name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, self._calls.put, None)
        # Each counted by one side only, so that neither needs a lock.
        self._begun, self._ended = 0, [0]

    async def run(self, function: Callable[[], T]) -> T:
        """Call the function on the thread; its result or error."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._begun += 1
        self._calls.put(partial(_call_for, result, function, self._ended))
        return await result

    @property
    def is_busy(self) -> bool:
        """True while a call runs, also one whose caller does not wait any more."""
        return self._begun > self._ended[0]

    def finish(self, last: Callable[[], object] | None = None) -> threading.Thread:
        """The thread, which ends after all pending calls and a last one; no call is waited for."""
        if last is not None:
            self._calls.put(last)
        self._end()
        return self._thread


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        # The finished call may hold a reference to the worker itself, which then would never end.
        del call


def _call_for(result: asyncio.Future[T], function: Callable[[], T], ended: list[int]) -> None:
    # Every error, KeyboardInterrupt too, belongs to the caller: the future raises it there.
    with Caught(BaseException) as failure:
        value = function()
    ended[0] += 1

    def deliver() -> None:
        if result.done():
            return
        if failure.error is None:
            result.set_result(value)
        elif isinstance(failure.error, StopIteration):
            # Futures do not accept it.
            wrapped = RuntimeError("the call raised StopIteration")
            wrapped.__cause__ = failure.error
            result.set_exception(wrapped)
        else:
            result.set_exception(failure.error)

    # The caller may have been cancelled and its loop closed in the meantime.
    with suppress(RuntimeError):
        result.get_loop().call_soon_threadsafe(deliver)
