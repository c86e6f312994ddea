"""A server that is started again where it ends by itself, or no longer responds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.error import URLError
from urllib.request import urlopen

from ludic_gym.concurrency import cancel_all
from ludic_train.cluster.servers.process import (
    POLL_S,
    START_S,
    ServerProcess,
    ended_with_log,
    last_error,
)
from ludic_train.errors import ServerError
from ludic_train.processes import Progress
from ludic_train.runs.machine import LOST_S

# Seconds between two looks, and for one look: with LOST_S together at most 30. The engine
# responds between two decoding steps, but not during a swap.
LOOK_EVERY_S, LOOK_S = 2.0, 5.0
# Of the engine: vLLM's API server responds to /health while its engine process is stopped.
ROUTE = "/weight_info"


def responds(url: str) -> bool:
    """True if the engine of a server responds within LOOK_S seconds."""
    try:
        with urlopen(f"{url}{ROUTE}", timeout=LOOK_S) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


# Restarts within RECENT_S seconds; a server that ends more often is broken.
RESTARTS, RECENT_S = 3, 3600.0


class SupervisedServer:
    """A server of this process, and its successors at the same address.

    start: starts a server; called in the thread of the event loop, whose end terminates it.
    name: of the server in messages.
    start_s, lost_s: seconds that a start may take, and without a response after which a server that
        has responded is lost; None takes LOST_S.
    progress: called during a start, with the seconds that have passed.
    starts: number of starts; the params of an earlier one are lost.
    error: the reason for which there is no further start; None while there is none.
    """

    def __init__(
        self,
        start: Callable[[], ServerProcess],
        *,
        name: str = "vLLM",
        start_s: float = START_S,
        lost_s: float | None = None,
        progress: Progress = lambda waited_s: None,
    ) -> None:
        self._start, self._start_s, self._progress = start, start_s, progress
        self._name, self._lost_s = name, LOST_S if lost_s is None else lost_s
        self.starts = 0
        self.error: ServerError | None = None
        self._ends: list[float] = []
        self._was_ready = False
        # When it was looked at last, and when it responded; None while it starts.
        self._looked = 0.0
        self._seen: float | None = None
        self._launch()

    @property
    def url(self) -> str:
        """Address of the server, the same after a restart."""
        return self._current.url

    async def ready(self) -> None:
        """Return once the server responds.

        Raises ServerError with the end of the log if it ended in its first start, ended more
        than RESTARTS times within RECENT_S seconds, or takes longer than `start_s` to start.
        """
        while not await self._responds():
            if self.error is not None:
                raise self.error
            waited_s = time.monotonic() - self._launched
            if waited_s > self._start_s:
                self.error = ended_with_log(
                    f"{self._name} did not respond within {self._start_s:g} s", self._current.log
                )
                raise self.error
            self._progress(waited_s)
            await asyncio.sleep(POLL_S)
        self._was_ready, self._seen = True, time.monotonic()

    async def survived(self, start: int) -> bool:
        """True if the server of that start responds, after a request that failed.

        Waits for the end of one that neither responds nor ends, and kills it after LOST_S: vLLM
        runs for some seconds after its engine has died.
        """
        until = time.monotonic() + self._lost_s
        while True:
            # A killed process has closed its connections a moment before it has ended.
            await asyncio.sleep(POLL_S)
            if start != self.starts or self._current.process.poll() is not None:
                return False
            if await self._responds():
                return True
            if time.monotonic() > until:
                self._current.process.kill()

    def stop(self) -> None:
        """Stop the server and its workers; takes up to half a minute."""
        self._current.stop()

    async def watch(self) -> None:
        """Start the server again whenever it has ended or is lost, until `error`."""
        while self.error is None:
            await asyncio.sleep(POLL_S)
            code = self._current.process.poll()
            if code is not None:
                await self._replace(f"{self._name} ended with code {code}")
            elif await self._is_lost():
                # SIGKILL, because a stopped process handles no other signal.
                self._current.process.kill()
                await self._replace(f"{self._name} did not respond for {self._lost_s:g} s")

    async def _replace(self, ended: str) -> None:
        """Start a successor of a server that has ended; `error` after too many.

        ended: the reason, a sentence without its period.
        """
        log, now = self._current.log, time.monotonic()
        self._ends = [*(end for end in self._ends if now - end < RECENT_S), now]
        if not self._was_ready:
            self.error = ended_with_log(f"{ended} during its start", log)
        elif len(self._ends) > RESTARTS:
            minutes = RECENT_S / 60
            reason = f"{ended}, after {RESTARTS} restarts within {minutes:.0f} minutes"
            self.error = ended_with_log(reason, log)
        else:
            print(
                f"{ended}; starting it again ({len(self._ends)} of {RESTARTS}; log: {log})\n"
                f"its last error: {last_error(log)}",
                flush=True,
            )
            # Its workers, which may hold the memory that the next one needs.
            await asyncio.to_thread(self._current.stop)
            self._launch()

    async def _is_lost(self) -> bool:
        """True if the server has responded, and has not for `lost_s` seconds by now."""
        # A limit below LOOK_EVERY_S needs looks as often as that.
        if time.monotonic() - self._looked < min(LOOK_EVERY_S, self._lost_s):
            return False
        is_there = await self._responds()
        # After the look, which may itself have taken LOOK_S seconds.
        self._looked = time.monotonic()
        if is_there:
            self._was_ready, self._seen = True, self._looked
        return self._seen is not None and self._looked - self._seen > self._lost_s

    def _launch(self) -> None:
        self._current = self._start()
        self.starts += 1
        self._launched = time.monotonic()
        self._seen = None

    async def _responds(self) -> bool:
        """True if the process runs and responds."""
        if self._current.process.poll() is not None:
            return False
        return await asyncio.to_thread(responds, self.url)


@asynccontextmanager
async def supervised_server(
    start: Callable[[], ServerProcess],
    *,
    name: str = "vLLM",
    start_s: float = START_S,
    lost_s: float | None = None,
    progress: Progress = lambda waited_s: None,
) -> AsyncIterator[SupervisedServer]:
    """A server that responds, started again where it ends, and stopped at the end of the block.

    Arguments as of `SupervisedServer`.
    Raises ServerError, also in place of an error of the block that follows from it.
    """
    server = SupervisedServer(start, name=name, start_s=start_s, lost_s=lost_s, progress=progress)
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
        await cancel_all([watching])
        server.stop()
