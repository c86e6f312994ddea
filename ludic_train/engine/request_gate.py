"""Mutual exclusion of sampling and changes of the params."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Aborted(Exception):
    """A request was aborted before its completion."""


class Gate:
    """Holds requests while it is closed, and knows those in flight.

    rest: waits until the engine is idle, once no request is in flight.
    is_paused: True from a pause() to the next resume().
    waiting: requests that are held.
    """

    def __init__(self, rest: Callable[[], Awaitable[None]]) -> None:
        self.is_paused = False
        self.waiting = 0
        self._rest = rest
        self._changes = 0
        self._change = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._in_flight: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """Number of requests in flight."""
        return len(self._in_flight)

    async def let_in(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Result of `work`, started when the gate is open. Raises Aborted if a pause aborted it."""
        self.waiting += 1
        try:
            # A loop, because the gate may be closed again before this coroutine runs.
            while not self._open.is_set():
                await self._open.wait()
        finally:
            self.waiting -= 1
        # A task of its own, so that a pause can cancel the work and leave its caller alive.
        task = asyncio.ensure_future(work())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Aborted from None

    def close(self) -> None:
        """Hold further requests; those in flight stay."""
        self.is_paused = True
        self._open.clear()

    async def pause(self, *, abort: bool = False) -> None:
        """Hold further requests; return when those in flight have ended, or were aborted.

        Requests that a resume() lets in meanwhile are not waited for.
        """
        self.close()
        if abort:
            for task in self._in_flight:
                task.cancel()
        await self._ended()

    def resume(self) -> None:
        """Let in held requests and all further ones."""
        self.is_paused = False
        self._open_if_free()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No request is in flight inside the block, paused or not; one block after the other."""
        # A count, because several changes can wait in a row: the gate opens after the last one.
        self._changes += 1
        self._open.clear()
        try:
            async with self._change:
                await self._ended()
                await self._rest()
                yield
        finally:
            self._changes -= 1
            self._open_if_free()

    async def _ended(self) -> None:
        if self._in_flight:
            await asyncio.wait(set(self._in_flight))

    def _open_if_free(self) -> None:
        if not self.is_paused and not self._changes:
            self._open.set()
