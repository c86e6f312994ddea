"""Inbox: a queue from threads to a thread or an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in the order in which they were put; any thread may put and take."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._changed = threading.Condition()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[T]) -> None:
        """Add the items, and wake all waiters that have enough of them."""
        with self._changed:
            self._items.extend(items)
            self._changed.notify_all()
            for count, waiter in self._waiters:
                if len(self._items) >= count:
                    _wake(waiter)

    def take(self, count: int) -> list[T]:
        """Wait for at least `count` items, blocking the thread; all items."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) >= count)
            items, self._items = self._items, []
        return items

    async def filled(self, count: int) -> None:
        """Wait for at least `count` items without blocking the event loop."""
        while True:
            waiter = asyncio.get_running_loop().create_future()
            with self._changed:
                if len(self._items) >= count:
                    return
                self._waiters.append((count, waiter))
            try:
                await waiter
            finally:
                with self._changed:
                    self._waiters.remove((count, waiter))


def _wake(waiter: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not waiter.done():
            waiter.set_result(None)

    # The loop may have been closed in the meantime.
    with suppress(RuntimeError):
        waiter.get_loop().call_soon_threadsafe(settle)
