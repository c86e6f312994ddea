"""PerLoop: connections, which work on the event loop that opened them alone."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Opened(NamedTuple, Generic[T]):
    """The value of one event loop, and the generator that ends with the loop."""

    value: T
    keeper: AsyncGenerator[None, None]


class PerLoop(Generic[T]):
    """One value for each event loop, closed when its loop ends.

    open: makes the value, on the loop. close: closes it, on the same loop, perhaps twice.
    Neither may refer to the owner of this object, whose collection closes the values left open.
    """

    def __init__(self, open: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._open = open
        self._close = close
        self._by_loop: dict[asyncio.AbstractEventLoop, _Opened[T]] = {}
        weakref.finalize(self, _close_left_open, self._by_loop, close)

    async def get(self) -> T:
        """That of the running loop, opened at the first call."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            # Tests and notebooks start many loops, and each of them would be kept.
            for ended in [other for other in self._by_loop if other.is_closed()]:
                del self._by_loop[ended]
            value = self._open()
            keeper = _closed_with_its_loop(value, self._close)
            # Up to its `yield`, without a wait: no other request can open a second one.
            await anext(keeper)
            self._by_loop[loop] = _Opened(value, keeper)
        return self._by_loop[loop].value

    async def close(self) -> None:
        """Close that of every loop; `get` opens another one."""
        here = asyncio.get_running_loop()
        for loop, opened in list(self._by_loop.items()):
            # That of an ended loop is closed.
            if loop is here:
                await self._close(opened.value)
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_closed(opened.value, self._close), loop)
                await asyncio.wrap_future(closing)
        self._by_loop.clear()


async def _closed(value: T, close: Callable[[T], Awaitable[None]]) -> None:
    await close(value)


async def _closed_with_its_loop(
    value: T, close: Callable[[T], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    # `asyncio.run` ends the asynchronous generators of its loop, and with this one the value.
    try:
        yield
    finally:
        await close(value)


def _close_left_open(
    by_loop: Mapping[asyncio.AbstractEventLoop, _Opened[T]], close: Callable[[T], Awaitable[None]]
) -> None:
    """Close what was collected with its owner, where the loop runs in another thread.

    Plain calls of policies have such a loop, and no place for an `async with`.
    """
    here = None
    with suppress(RuntimeError):
        here = asyncio.get_running_loop()
    for loop, opened in by_loop.items():
        if loop.is_running() and here is not loop:
            closing = asyncio.run_coroutine_threadsafe(_closed(opened.value, close), loop)
            closing.result(timeout=1.0)
