"""Publications that run in a thread while training continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any

from torch import Tensor

from ludic_train.cluster.loop_thread import LoopThread
from ludic_train.distributed.device import host_copies
from ludic_train.sources.publisher import PolicyPublisher


class BackgroundPublisher:
    """Publishes as `publisher` does, and returns as soon as the params are copied.

        publisher = BackgroundPublisher(FilesPublisher(servers, model=model))
        trainer = Trainer(model, grpo(max_lag=2), source, publisher)
        await trainer.train(1_000)
        await publisher.finish()
        await publisher.aclose()

    One publication runs at a time: the next waits for the one before, and raises its error. The
    first one is awaited, so that a wrong address is found before training begins; so is one of a
    version that is not newer, which servers get that have lost it. Servers keep the version before
    until a publication ends, and stamp tokens with it, so that `max_lag` holds as without a thread.

    publisher: used in the thread's event loop alone; must not keep the tensors that it is given.
    look: checks the publisher's servers, in the same loop.
    frozen: names of params that training never changes, which are copied once.
    here: gets the copies too, at once and in the caller's loop.
    The copies stay in the CPU's memory for the next publication, as much as the published params.
    """

    def __init__(
        self,
        publisher: PolicyPublisher,
        *,
        look: Callable[[], Coroutine[Any, Any, None]] | None = None,
        frozen: Collection[str] = (),
        here: PolicyPublisher | None = None,
    ) -> None:
        self._publisher, self._look, self._frozen = publisher, look, frozenset(frozen)
        self._here = here
        self._copies: dict[str, Tensor] = {}
        self._thread: LoopThread | None = None
        self._running: Future[None] | None = None
        self._newest: int | None = None

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Begin a publication of the params as they are now, once the one before has ended.

        Raises the error of that one, and its own if it is awaited.
        """
        await self.finish()
        # Only now: until then the memory is read.
        copies = host_copies(params, self._copies, unchanged=self._frozen)
        self._thread = self._thread or LoopThread("publisher")
        work = self._publisher.publish(copies.items(), version)
        self._running = self._thread.start(work)
        if self._newest is None or version <= self._newest:
            await self.finish()
        self._newest = version
        if self._here is not None:
            # From the copies: a model that is spread over ranks is never whole, and is read once.
            await self._here.publish(copies.items(), version)

    async def look(self) -> None:
        """Raise the error of a publication that failed; if none is running, check the servers."""
        if self._running is not None and not self._running.done():
            return
        await self.finish()
        if self._look is not None and self._thread is not None:
            await self._thread.call(self._look())

    async def finish(self) -> None:
        """Return once no publication is running. Raises the error of the last one, once."""
        if self._running is None:
            return
        ended = asyncio.wrap_future(self._running)
        # Unlike `await ended`, a cancelled wait leaves the publication to run.
        await asyncio.wait({ended})
        self._running = None
        ended.result()

    async def aclose(self) -> None:
        """Cancel a publication that is running, and log an error that was not raised yet.

        May be called twice. The next publication is awaited as the first one is.
        """
        running, self._running, self._newest = self._running, None, None
        thread, self._thread = self._thread, None
        if thread is not None:
            # Not in this loop, which may be that of a server that has to respond.
            await asyncio.to_thread(thread.close)
        if running is not None and running.done() and not running.cancelled():
            error = running.exception()
            if error is not None:
                logging.getLogger(__name__).error("params were not published", exc_info=error)
