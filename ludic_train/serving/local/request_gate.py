"""What lets requests in: sampling and changing params take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Aborted(Exception):
    """The request was ended before it had an answer."""


class Gate:
    """Holds requests while it is closed, and knows which are under way.

    rest: waits until whatever samples has come to rest, once no request is under way.
    is_paused: whether somebody paused, and nobody resumed yet.
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
        self._under_way: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """Requests that are under way."""
        return len(self._under_way)

    async def let_in(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns, begun when the gate is open. Raises Aborted if that was ended."""
        self.waiting += 1
        try:
            while not self._open.is_set():
                await self._open.wait()
        finally:
            self.waiting -= 1
        task = asyncio.ensure_future(work())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Aborted from None

    async def pause(self, *, abort: bool = False) -> None:
        """Let nobody in any more; return when those under way have ended, or with abort been ended.

        Who is let in by a resume() meanwhile is not waited for.
        """
        self.is_paused = True
        self._open.clear()
        if abort:
            for task in self._under_way:
                task.cancel()
        await self._ended()

    def resume(self) -> None:
        """Let in who waits, and whoever comes."""
        self.is_paused = False
        self._open_if_free()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing samples inside the block, paused or not; one block after the other."""
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
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def _open_if_free(self) -> None:
        if not self.is_paused and not self._changes:
            self._open.set()
