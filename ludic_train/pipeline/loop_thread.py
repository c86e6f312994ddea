"""An event loop in a thread of its own: what must go on while the caller's loop computes."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a thread that ends with the process, or when it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        self._closing = weakref.finalize(self, _stop, self._loop, self._thread)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, run in the thread; cancelled there if it is cancelled here."""
        return await asyncio.wrap_future(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """What `work` will return, run in the thread whoever waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what runs, and end the thread."""
        self._closing()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    # The thread itself may be the one that collects the garbage.
    if thread is not threading.current_thread():
        thread.join()
