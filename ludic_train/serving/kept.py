"""A vLLM server that is started again where it ends by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ludic_gym.concurrency import cancelled
from ludic_train.errors import ServerError
from ludic_train.serving.process import (
    POLL_S,
    START_S,
    ServerProcess,
    ended_with_log,
    responds,
)
from ludic_train.serving.startup import Progress

# Restarts without an update in between; a server that ends more often is broken.
RESTARTS = 3
# Seconds for which a server may be running without a response before it is killed.
UNWELL_S = 30.0


class KeptServer:
    """A server of this process, and its successors at the same address.

    start: starts a server; called in the thread of the event loop, whose end terminates it.
    progress: called during a start, with the seconds that have passed.
    starts: number of starts; the params of an earlier one are lost.
    error: the reason for which there is no further start; None while there is none.
    """

    def __init__(
        self,
        start: Callable[[], ServerProcess],
        *,
        start_s: float = START_S,
        progress: Progress = lambda waited_s: None,
    ) -> None:
        self._start, self._start_s, self._progress = start, start_s, progress
        self.starts = 0
        self.error: ServerError | None = None
        self._restarts, self._was_ready = 0, False
        self._launch()

    @property
    def url(self) -> str:
        """Address of the server, the same after a restart."""
        return self._current.url

    async def ready(self) -> None:
        """Return once the server responds.

        Raises ServerError with the end of the log if it ended in its first start, ended RESTARTS
        times without an update, or takes longer than `start_s` to start.
        """
        while not await self._responds():
            if self.error is not None:
                raise self.error
            waited_s = time.monotonic() - self._launched
            if waited_s > self._start_s:
                self.error = ended_with_log(
                    f"vLLM did not respond within {self._start_s:g} s", self._current.log
                )
                raise self.error
            self._progress(waited_s)
            await asyncio.sleep(POLL_S)
        self._was_ready = True

    async def survived(self, start: int) -> bool:
        """True if the server of that start responds, after a request that failed.

        Waits for the end of one that neither responds nor ends, and kills it after UNWELL_S: vLLM
        runs for some seconds after its engine has died.
        """
        until = time.monotonic() + UNWELL_S
        while True:
            # A killed process has closed its connections a moment before it has ended.
            await asyncio.sleep(POLL_S)
            if start != self.starts or self._current.process.poll() is not None:
                return False
            if await self._responds():
                return True
            if time.monotonic() > until:
                self._current.process.kill()

    def updated(self) -> None:
        """Note an update of the run, after which all restarts are allowed again."""
        self._restarts = 0

    def stop(self) -> None:
        """Stop the server and its workers; takes up to half a minute."""
        self._current.stop()

    async def watch(self) -> None:
        """Start the server again whenever it has ended, until `error`."""
        while self.error is None:
            await asyncio.sleep(POLL_S)
            code = self._current.process.poll()
            if code is not None:
                await self._replace(code)

    async def _replace(self, code: int) -> None:
        """Start a successor of a server that ended with this code; `error` after too many."""
        ended, log = f"vLLM ended with code {code}", self._current.log
        if not self._was_ready:
            self.error = ended_with_log(f"{ended} during its start", log)
        elif self._restarts == RESTARTS:
            self.error = ended_with_log(
                f"{ended}, after {RESTARTS} restarts without an update in between", log
            )
        else:
            self._restarts += 1
            print(
                f"{ended}; starting it again ({self._restarts} of {RESTARTS}; log: {log})",
                flush=True,
            )
            # Its workers, which may hold the memory that the next one needs.
            await asyncio.to_thread(self._current.stop)
            self._launch()

    def _launch(self) -> None:
        self._current = self._start()
        self.starts += 1
        self._launched = time.monotonic()

    async def _responds(self) -> bool:
        """True if the process runs and responds."""
        if self._current.process.poll() is not None:
            return False
        return await asyncio.to_thread(responds, self.url)


@asynccontextmanager
async def kept_server(
    start: Callable[[], ServerProcess],
    *,
    start_s: float = START_S,
    progress: Progress = lambda waited_s: None,
) -> AsyncIterator[KeptServer]:
    """A server that responds, started again where it ends, and stopped at the end of the block.

    Arguments as of `KeptServer`.
    Raises ServerError, also in place of an error of the block that follows from it.
    """
    server = KeptServer(start, start_s=start_s, progress=progress)
    watching = asyncio.create_task(server.watch())
    try:
        await server.ready()
        yield server
    except Exception as error:
        # Episodes and publications fail of it in ways of their own.
        if server.error is not None and error is not server.error:
            raise server.error from error
        raise
    finally:
        await cancelled([watching])
        server.stop()
