"""Servers that sample for a recipe's actors: waited for, published to, and looked after.

A server is in one of four states, by the name that it gives its params:

    silent     no response: it is starting, or gone; left out, and waited for if all are
    new        it has joined, or responds for the first time
    lost       a name that no trainer gives: it was started again, with the params of its start
    usual      a version that was published, or is being published

A server that lost its params would let actors play with old ones as if they were new, so the run
publishes again before it trains on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

from torch import Tensor

from ludic_gym.clients.transport import root_addresses
from ludic_gym.concurrency import cancel_all
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.queues.base import GroupQueue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.errors import ParamsLost, PublishError, QueueUnavailable
from ludic_train.runs.signals import StopSign
from ludic_train.sources.levels import Levels
from ludic_train.types import SAWBatch

# Enough for a server to load a large model.
PATIENCE_S = 600.0
# The limit of a look at a server that was silent before.
SILENT_ANSWER_S = 1.0
# The limit of one look, the pause between two while nothing else happens, the time without a batch
# after which servers are suspected, and the time between two lines of a log about a wait.
ANSWER_S, POLL_S, QUIET_S, NOTE_EVERY_S = 10.0, 0.5, 10.0, 30.0


async def none_joined() -> Sequence[str]:
    """Addresses of servers that have joined a run which none can join."""
    return ()


class PatientPublisher:
    """Publishes to the servers that respond, of those that are named and those that have joined.

    A server that starts late, was started again, or joins in the middle of a run gets the params at
    the next publication; one that goes away in a publication is left out. Actors send requests only
    to servers with the newest version.

    publisher_to: makes the publisher to some servers, once the first respond; it should continue
        without those that fail.
    urls: of the named servers, which no other run publishes to; a new run takes them over.
    stop: ends the wait for a server.
    joined: addresses of further servers, now.
    patience_s: seconds for which all servers may be silent before that is an error.
    version: the last one that was published; None before the first.
    """

    def __init__(
        self,
        publisher_to: Callable[[Sequence[str]], FilesPublisher],
        urls: Sequence[str],
        stop: StopSign,
        *,
        joined: Callable[[], Awaitable[Sequence[str]]] = none_joined,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.version: int | None = None
        self._publisher_to, self._fixed, self._joined = publisher_to, tuple(urls), joined
        self._stop, self._patience_s = stop, patience_s
        self._publisher: FilesPublisher | None = None
        # All that were published: a server with another number has it from another run.
        self._versions: set[str] = set()
        # Servers that had a version of this run, and those that did not take the last one.
        self._had: set[str] = set()
        self._refused: dict[str, str] = {}
        self._silent: list[str] = []
        self._silent_since: float | None = None
        self._next_note = 0.0

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all servers that respond have the params, at least one.

        A publication that fails everywhere because servers went away in it is made once more.
        Raises PublishError where all servers stay silent, where none takes the params, and for one
        that another run publishes to; StopRequested.
        """
        # An iterator can be read once only, and this may publish twice.
        whole = list(params)
        try:
            await self._publish(whole, version)
        except PublishError as error:
            named = await self._named()
            if None not in named.values() and not self._lost(named):
                raise
            logging.getLogger(__name__).warning("publishing once more: %s", error)
            await self._publish(whole, version)
        # Last: until here, a server may have this version or the one before.
        self.version = version

    async def look(self) -> None:
        """Check that the servers have the params that were published last.

        Raises ParamsLost where one was started again or has joined, PublishError where all are
        silent for too long, after a warning.
        """
        named = await self._named()
        self._note_silent(named)
        new = {url for url, name in named.items() if name is not None} - self._had
        lost = sorted({*self._lost(named), *new} - self._refused.keys())
        if lost:
            raise ParamsLost(f"{', '.join(lost)} lost version {self.version}, or has just joined")

    async def _publish(self, params: Sequence[tuple[str, Tensor]], version: int) -> None:
        """Publish once to the servers that respond now; wait for the first of them."""
        named = await self._until_one_answers()
        lost = self._lost(named)
        there = [url for url, name in named.items() if name is not None]
        if self._publisher is None:
            self._publisher = self._publisher_to(there)
            await self._publisher.take_over()
        fleet = self._publisher.fleet
        fleet.follow(there)
        for replica in fleet.replicas:
            if replica.url in lost:
                # The publisher connects only to new ones; a restarted server has no connection.
                replica.state, replica.error = "new", ""
        # Before the first server can have it.
        self._versions.add(str(version))
        await self._publisher.publish(params, version)
        self._note_reached({r.url: r.describe() for r in fleet.replicas if r.state != "ready"})

    def _note_reached(self, refused: Mapping[str, str]) -> None:
        """Log which servers are new, and which did not take the params."""
        assert self._publisher is not None
        log = logging.getLogger(__name__)
        for url, state in refused.items():
            if self._refused.get(url) is None:
                log.warning("a server gets no requests until it takes the params: %s", state)
        reached = {replica.url for replica in self._publisher.fleet.replicas} - refused.keys()
        if self.version is not None:
            for url in sorted(reached - self._had):
                log.warning("%s has joined; %d servers have the params", url, len(reached))
        self._had |= reached
        self._refused = dict(refused)

    async def _until_one_answers(self) -> dict[str, str | None]:
        """As `_named`, once one of them responds."""
        while True:
            named = await self._named()
            self._note_silent(named)
            if any(name is not None for name in named.values()):
                return named
            self._stop.check()
            await asyncio.sleep(POLL_S)

    def _lost(self, named: Mapping[str, str | None]) -> list[str]:
        """Servers with params that were not published, though they had some that were.

        Raises PublishError for params that another run has published.
        """
        lost = [
            url
            for url, name in named.items()
            if url in self._had and name is not None and name not in self._versions
        ]
        for url in lost:
            # A server that was started again does not call its params by a number.
            if str(named[url]).isdecimal():
                raise PublishError(
                    f"{url} has version {named[url]}, but {self.version} was published to it: "
                    "another run publishes to it too, and a server can serve one run at a time"
                )
        return lost

    def _note_silent(self, named: Mapping[str, str | None]) -> None:
        """Log that servers are silent. Raises PublishError after `patience_s` without any."""
        log = logging.getLogger(__name__)
        silent = [url for url, name in named.items() if name is None]
        is_new, self._silent = silent != self._silent, silent
        if len(silent) < len(named):
            self._silent_since = None
            if silent and is_new:
                count = len(named) - len(silent)
                log.warning("no answer from %s; %d servers do answer", ", ".join(silent), count)
            return
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._silent_since = self._next_note = now
        waited_s, names = now - self._silent_since, ", ".join(silent) or "any server"
        if waited_s > self._patience_s:
            raise PublishError(
                f"no answer from {names} for {waited_s:.0f} s: start it with `ludic serve`, then "
                "continue with --resume, which publishes first"
            )
        if now >= self._next_note:
            self._next_note = now + NOTE_EVERY_S
            log.warning(
                "waiting for %s to answer: %.0f s of %.0f s", names, waited_s, self._patience_s
            )

    async def _named(self) -> dict[str, str | None]:
        """Name that each server gives its params, by address; None where it does not respond."""
        joined = list(self._fixed)
        try:
            joined += await self._joined()
        # Its queue is away: the trainer waits for that elsewhere.
        except QueueUnavailable as error:
            logging.getLogger(__name__).warning("servers that have joined are unknown: %s", error)
            joined += [url for url in self._had if url not in joined]
        urls = list(dict.fromkeys(root_addresses(joined)))
        # A server that was silent before must not make each publication wait.
        limits = [SILENT_ANSWER_S if url in self._silent else ANSWER_S for url in urls]
        names = await asyncio.gather(*map(server_version, urls, limits))
        return dict(zip(urls, names, strict=True))


async def server_version(url: str, limit_s: float) -> str | None:
    """Name that a server gives its params; None where it does not respond in time."""
    # A connection per look, since a kept one outlives a server that is started again.
    async with aclosing(ControlClient(url, limit_s=limit_s)) as server:
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
        levels: Levels | None = None,
        quiet_s: float = QUIET_S,
    ) -> None:
        super().__init__(
            queue,
            groups_per_batch=groups_per_batch,
            group_size=group_size,
            vocab_size=vocab_size,
            levels=levels,
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
            await cancel_all([coming])

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
