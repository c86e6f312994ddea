"""Servers that sample for a recipe's actors: waited for, published to, and looked after.

A server is in one of three states, by the name that it gives its params:

    silent     no response: it is starting, or gone; waited for, up to `patience_s`
    lost       a name that no trainer gives: it was started again, with the params of its start
    usual      the version that was published, or is being published

A server that lost its params would let actors play with old ones as if they were new, so the run
publishes again before it trains on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from torch import Tensor

from ludic_gym.concurrency import cancelled
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import ParamsLost, PublishError
from ludic_train.pipeline.queues.base import GroupQueue
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.publishers.control import ControlClient
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.types import SAWBatch

# Enough for a server to load a large model.
PATIENCE_S = 600.0
# The limit of one look, the pause between two while nothing else happens, the time without a batch
# after which servers are suspected, and the time between two lines of a log about a wait.
ANSWER_S, POLL_S, QUIET_S, NOTE_EVERY_S = 10.0, 0.5, 10.0, 30.0


class StopRequested(Exception):
    """A stop was requested while a batch or a server was waited for.

    No TrainError: it is a way to end a wait, which the run turns into an orderly end.
    """


@dataclass(slots=True)
class StopSign:
    """Ends the waits of a run's source and publisher; the run sets `is_set` when it begins.

    is_set: must be cheap, since every wait calls it a few times a second.
    failure: the error for which no wait can end well; None without one. As cheap.
    """

    is_set: Callable[[], bool] = lambda: False
    failure: Callable[[], Exception | None] = lambda: None

    def check(self) -> None:
        """Raise StopRequested once a stop was requested, and the failure if there is one."""
        if (error := self.failure()) is not None:
            raise error
        if self.is_set():
            raise StopRequested


class PatientPublisher:
    """Publishes to servers that may be starting still, or were started again.

    publisher: of the servers, which no other run publishes to; a new run takes them over.
    stop: ends the wait for a server.
    patience_s: seconds for which any server may be silent before that is an error.
    version: the last one that reached all servers; None before the first.
    """

    def __init__(
        self, publisher: VLLMPublisher, stop: StopSign, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.version: int | None = None
        self._publisher, self._stop, self._patience_s = publisher, stop, patience_s
        self._silent_since: float | None = None
        self._next_note = 0.0

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all servers have the params, restarted ones included.

        A publication that fails because a server went away in it is made once more, from the
        beginning; servers that have the version already get it again.
        Raises PublishError for servers that stay silent, that another run publishes to, or that
        do not take the params; StopRequested.
        """
        # An iterator can be read once only, and this may publish twice.
        known = list(params)
        await self._until_all_answer(version)
        if self.version is None:
            await self._publisher.take_over()
        try:
            await self._publisher.publish(known, version)
        except PublishError as error:
            if not any(await self._silent_and_lost(version)):
                raise
            logging.getLogger(__name__).warning("publishing once more: %s", error)
            await self._until_all_answer(version)
            await self._publisher.publish(known, version)
        # Last: until here, a server may have this version or the one before.
        self.version = version

    async def look(self) -> None:
        """Check that all servers have the params that were published last.

        Raises ParamsLost where one was started again, PublishError where one is silent for too
        long, after a warning.
        """
        silent, lost = await self._silent_and_lost(self.version)
        self._note_silent(silent)
        if lost:
            raise ParamsLost(f"{', '.join(lost)} lost version {self.version}")

    async def _until_all_answer(self, version: int) -> None:
        """Wait for all servers, and have those that lost their params connected again."""
        while True:
            silent, lost = await self._silent_and_lost(version)
            self._note_silent(silent)
            if not silent:
                break
            self._stop.check()
            await asyncio.sleep(POLL_S)
        for replica in self._publisher.fleet.replicas:
            if replica.url in lost:
                # The publisher connects only to new ones; a restarted server has no connection.
                replica.state, replica.error = "new", ""

    async def _silent_and_lost(self, version: int | None) -> tuple[list[str], list[str]]:
        """Servers that do not answer, and those with params that were not published.

        version: that may have reached some of them, beside the last one that reached all.
        Raises PublishError for params that another run has published.
        """
        named = await self._named()
        silent = [url for url, name in named.items() if name is None]
        usual = {None, str(self.version), str(version)}
        # Before the first publication, params of any name are to be replaced.
        lost = {u: n for u, n in named.items() if self.version is not None and n not in usual}
        for url, name in lost.items():
            # A server that was started again does not call its params by a number.
            if str(name).isdecimal():
                raise PublishError(
                    f"{url} has version {name}, but {self.version} was published to it: another "
                    "run publishes to it too, and a server can serve one run at a time"
                )
        return silent, list(lost)

    def _note_silent(self, urls: Sequence[str]) -> None:
        """Log that servers are silent. Raises PublishError after `patience_s` of it."""
        if not urls:
            self._silent_since = None
            return
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._silent_since = self._next_note = now
        waited_s, names = now - self._silent_since, ", ".join(urls)
        if waited_s > self._patience_s:
            raise PublishError(
                f"no answer from {names} for {waited_s:.0f} s: start it with `ludic serve`, then "
                "continue with --resume, which publishes first"
            )
        if now >= self._next_note:
            self._next_note = now + NOTE_EVERY_S
            logging.getLogger(__name__).warning(
                "waiting for %s to answer: %.0f s of %.0f s", names, waited_s, self._patience_s
            )

    async def _named(self) -> dict[str, str | None]:
        """Name that each server gives its params, by address; None where it does not answer."""
        urls = [replica.url for replica in self._publisher.fleet.replicas]
        return dict(zip(urls, await asyncio.gather(*map(_version, urls)), strict=True))


async def _version(url: str) -> str | None:
    """Name that a server gives its params; None where it does not respond within ANSWER_S."""
    # A connection per look, since a kept one outlives a server that is started again.
    async with aclosing(ControlClient(url, limit_s=ANSWER_S)) as server:
        try:
            return str((await server.get("/weight_info")).get("weight_version", "")) or None
        except PublishError:
            return None


class WatchedSource(PipelineBatchSource):
    """A source that looks after the servers that sample for its actors, and can be stopped.

    stop: ends the wait for a batch.
    look: called every `quiet_s` seconds while no batch comes; its error ends the wait, and no group
        is lost by that. A batch that comes in time needs no look: its actors have servers.
    settled: the version that all batches given so far are in; None before the first.
    """

    def __init__(
        self,
        queue: GroupQueue,
        stop: StopSign,
        look: Callable[[], Awaitable[None]] | None = None,
        *,
        groups_per_batch: int,
        group_size: int,
        vocab_size: int | None = None,
        quiet_s: float = QUIET_S,
    ) -> None:
        super().__init__(
            queue, groups_per_batch=groups_per_batch, group_size=group_size, vocab_size=vocab_size
        )
        self.settled: int | None = None
        self.stop, self._look, self._quiet_s = stop, look, quiet_s

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch. Raises StopRequested, errors of `look`, and as the base class."""
        # A task that is cancelled leaves its groups to the next call, as the base class has it.
        coming = asyncio.ensure_future(super().next_batch(algo))
        try:
            await self._watched(coming)
            return coming.result()
        finally:
            await cancelled([coming])

    async def trained(self, version: int) -> None:
        """As the base class; `settled` follows once the queue knows."""
        await super().trained(version)
        self.settled = version

    async def _watched(self, coming: asyncio.Future[SAWBatch]) -> None:
        """Return when the batch is there. Raises StopRequested and errors of `look`."""
        loop = asyncio.get_running_loop()
        next_look = loop.time() + self._quiet_s
        while not (await asyncio.wait({coming}, timeout=min(POLL_S, self._quiet_s)))[0]:
            self.stop.check()
            if self._look is not None and loop.time() >= next_look:
                await self._look()
                next_look = loop.time() + self._quiet_s
