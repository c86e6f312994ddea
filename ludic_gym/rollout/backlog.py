"""Backlog: results that wait for one consumer, and hold their producers back."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Backlog(Generic[T]):
    """A queue from many producers to one consumer.

    Producers wait before they make a result, and not with one in hand: results that wait long are
    no longer in the processor's caches when they are read.

    room: number of results that may wait before no further one is begun.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._results: deque[T] = deque()
        self._consumer: asyncio.Future[None] | None = None
        # Producers without room. The last one goes first: they hold nothing, and its frame is
        # still in the caches.
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False

    def put(self, result: T) -> None:
        """Add a result, in any case: what is begun is kept."""
        self._results.append(result)
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)

    async def get(self) -> T:
        """The oldest result; wait for it if needed."""
        while not self._results:
            self._consumer = asyncio.get_running_loop().create_future()
            await self._consumer
        result = self._results.popleft()
        # Before the last one is taken, so that the consumer seldom waits.
        if len(self._results) <= self._room // 2:
            self._wake()
        return result

    async def wait_for_room(self) -> None:
        """Return once another result may be begun."""
        if len(self._results) < self._room:
            return
        loop = asyncio.get_running_loop()
        while len(self._results) >= self._room:
            turn = loop.create_future()
            self._idle.append(turn)
            try:
                await turn
            finally:
                self._is_waking = False
                # One after the other: a producer that never waits for a model fills the room by
                # itself. One that is cancelled leaves its turn to the next.
                loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake one producer if there is room, unless one is being woken."""
        while self._idle and not self._is_waking and len(self._results) < self._room:
            turn = self._idle.pop()
            # Not one that was cancelled.
            if not turn.done():
                self._is_waking = True
                turn.set_result(None)
