"""Servers that sample for a recipe's actors: waited for, published to, and looked after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from torch import Tensor

from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import ParamsLost, PublishError
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.publishers.control import ControlClient
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.sources.base import Pace
from ludic_train.types import SAWBatch

# What a server that is loading a large model may take.
PATIENCE_S = 600.0
ANSWER_S, POLL_S, QUIET_S, NOTE_EVERY_S = 10.0, 0.5, 10.0, 30.0
# Whether somebody asked to stop.
StopSign = Callable[[], bool]


def nobody_asked() -> bool:
    """The sign that never comes."""
    return False


class StopAsked(Exception):
    """Somebody asked to stop while a batch or a server was waited for."""


class PatientPublisher:
    """Publishes to servers that may be starting still, or were started again.

    publisher: of the servers, which nobody else publishes to; who starts takes them over.
    patience_s: how long a server may give no answer.
    """

    def __init__(self, publisher: VLLMPublisher, *, patience_s: float = PATIENCE_S) -> None:
        self.version: int | None = None
        self._publisher = publisher
        self._patience_s = patience_s
        self._silent_since: float | None = None
        self._next_note = 0.0
        self._stop_asked: StopSign = nobody_asked

    def end_waits(self, stop_asked: StopSign) -> None:
        """Raise StopAsked, instead of waiting on, once `stop_asked` says so."""
        self._stop_asked = stop_asked

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all servers have the params, whatever befell them since the last time.

        Raises PublishError for servers that stay silent, that somebody else publishes to, or that
        do not take the params; StopAsked.
        """
        known = list(params)
        await self._until_all_answer(version)
        if self.version is None:
            await self._publisher.take_over()
        try:
            await self._publisher.publish(known, version)
        except PublishError as error:
            if not await self._has_outage(version):
                raise
            logging.getLogger(__name__).warning("publishing once more: %s", error)
            await self._until_all_answer(version)
            await self._publisher.publish(known, version)
        self.version = version

    async def look(self) -> None:
        """See that all servers have what was published last.

        Raises ParamsLost where one was started again, PublishError where one is silent for too
        long; says so before.
        """
        found = await self._named()
        self._note_silent(_silent(found))
        if lost := self._lost(found, self.version):
            raise ParamsLost(f"{', '.join(lost)} lost version {self.version}")

    async def _until_all_answer(self, version: int) -> None:
        """Wait for all servers, and have those that lost their params connected again."""
        while silent := _silent(found := await self._named()):
            self._note_silent(silent)
            if self._stop_asked():
                raise StopAsked
            await asyncio.sleep(POLL_S)
        self._note_silent(silent)
        for replica in self._publisher.fleet.replicas:
            if replica.url in self._lost(found, version):
                replica.state, replica.error = "new", ""

    async def _has_outage(self, version: int) -> bool:
        found = await self._named()
        return bool(_silent(found) or self._lost(found, version))

    def _lost(self, found: Mapping[str, str | None], version: int | None) -> list[str]:
        """Servers with params that were not published.

        Raises PublishError for params that somebody else has published.
        """
        if self.version is None:
            return []
        others = {
            u: n for u, n in found.items() if n not in (None, str(self.version), str(version))
        }
        for url, named in others.items():
            if str(named).isdecimal():
                raise PublishError(
                    f"{url} has version {named}, but {self.version} was published to it: somebody "
                    "else publishes to it too, and a server can serve one run at a time"
                )
        return list(others)

    def _note_silent(self, urls: Sequence[str]) -> None:
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
                "go on with --resume, which publishes first"
            )
        if now >= self._next_note:
            self._next_note = now + NOTE_EVERY_S
            logging.getLogger(__name__).warning(
                "waiting for %s to answer: %.0f s of %.0f s", names, waited_s, self._patience_s
            )

    async def _named(self) -> dict[str, str | None]:
        """By server, what it calls its params; None where it does not say."""
        urls = [replica.url for replica in self._publisher.fleet.replicas]
        return dict(zip(urls, await asyncio.gather(*map(_version, urls)), strict=True))


def _silent(found: Mapping[str, str | None]) -> list[str]:
    return [url for url, named in found.items() if named is None]


async def _version(url: str) -> str | None:
    async with aclosing(ControlClient(url, limit_s=ANSWER_S)) as server:
        try:
            return str((await server.get("/weight_info")).get("weight_version", "")) or None
        except PublishError:
            return None


class Watcher(Protocol):
    """Looks after what batches depend on while they are waited for."""

    def end_waits(self, stop_asked: StopSign) -> None:
        """Raise StopAsked, instead of waiting on, once `stop_asked` says so."""

    async def look(self) -> None:
        """Raise what a wait for a batch is to end with."""


class NoServers:
    """Actors that sample by themselves come and go: there is nothing to look after."""

    def end_waits(self, stop_asked: StopSign) -> None:
        """Nothing is waited for."""

    async def look(self) -> None:
        """All is well."""


class WatchedSource:
    """The batches of `source`; while none comes, `watcher` looks every `quiet_s` seconds.

    What it raises ends the wait, and no group is lost by that.
    settled: the version that all batches given so far are in; None before the first.
    """

    def __init__(
        self, source: PipelineBatchSource, watcher: Watcher, *, quiet_s: float = QUIET_S
    ) -> None:
        self.settled: int | None = None
        self._source, self._watcher, self._quiet_s = source, watcher, quiet_s
        self._stop_asked: StopSign = nobody_asked

    def end_waits(self, stop_asked: StopSign) -> None:
        """Raise StopAsked, instead of waiting on, once `stop_asked` says so."""
        self._stop_asked = stop_asked
        self._watcher.end_waits(stop_asked)

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch. Raises StopAsked, errors of the watcher, and as the source's own."""
        coming = asyncio.ensure_future(self._source.next_batch(algo))
        try:
            await self._watched(coming)
            return coming.result()
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _watched(self, coming: asyncio.Future[SAWBatch]) -> None:
        loop = asyncio.get_running_loop()
        next_look = loop.time() + self._quiet_s
        while not (await asyncio.wait({coming}, timeout=min(POLL_S, self._quiet_s)))[0]:
            if self._stop_asked():
                raise StopAsked
            if loop.time() >= next_look:
                await self._watcher.look()
                next_look = loop.time() + self._quiet_s

    async def begin(self, pace: Pace) -> None:
        """As the source's own."""
        await self._source.begin(pace)

    async def trained(self, version: int) -> None:
        """As the source's own."""
        await self._source.trained(version)
        self.settled = version

    def state_dict(self) -> dict[str, Any]:
        """As the source's own."""
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the source's own."""
        self._source.load_state_dict(state)

    async def aclose(self) -> None:
        """As the source's own."""
        await self._source.aclose()
