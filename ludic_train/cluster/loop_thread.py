"""An event loop in a thread of its own, for work beside the caller's loop that computes."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a thread that ends with the process, or when it is closed.

        thread = LoopThread("queue")
        entries = await thread.call(queue.read(64))    # from any other loop
        thread.close()

    name: of the thread, as debuggers and profilers display it.
    What the coroutines use (clients, queues, locks) belongs to this loop and must not be used from
    the caller's.
    """

    def __init__(self, name: str) -> None:
        # A factory, so that the loop does not become that of the thread that calls.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        # A daemon, because a program that ends without close() must not wait for its queue.
        thread = threading.Thread(target=_run, args=(runner,), name=name, daemon=True)
        thread.start()
        # Neither the loop nor the thread refers to this object, so that it can be collected.
        self._closing = weakref.finalize(self, _stop, self._loop, thread)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of `work`, run in the thread; cancelled there if the call is cancelled."""
        return await asyncio.wrap_future(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Future result of `work`, run in the thread whether or not the caller waits for it.

        Cancelling the future cancels `work` at its next await.
        """
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel all running coroutines, and end the thread; a second call does nothing."""
        self._closing()


def _run(runner: asyncio.Runner) -> None:
    # At its end, the runner cancels what is left and closes the loop.
    with runner:
        runner.get_loop().run_forever()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    # The thread itself may be the one that collects the garbage.
    if thread is not threading.current_thread():
        thread.join()
