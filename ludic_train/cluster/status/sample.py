"""States of a queue and of the servers that sample, and rates between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ludic_gym.concurrency import cancelled
from ludic_train.cluster.queues.base import QueueStatus
from ludic_train.cluster.status.servers import Status, statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Groups that an actor pushes, and tokens that it samples, per second."""

    groups: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Last known state of a server, and its tokens per second since the state before.

    at_s: seconds of the clock that the loads of a server share.
    """

    status: Status
    at_s: float
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A status, when it was (seconds of any clock), and the rates since the sample before.

    actors: rates by name, of those that were in the sample before too.
    trained_per_s: groups trained on.
    servers: the load of the servers that sample; none where actors do.
    """

    status: QueueStatus
    at_s: float
    actors: Mapping[str, Rate] = field(default_factory=dict)
    trained_per_s: float = 0.0
    servers: Sequence[Load] = ()

    @property
    def tokens_per_s(self) -> float:
        """Tokens that all actors sample together."""
        return sum(rate.tokens for rate in self.actors.values())


def next_sample(
    before: Sample | None, status: QueueStatus, at_s: float, servers: Sequence[Load] = ()
) -> Sample:
    """The sample of `status`; rates are 0 where nothing is known from before.

    before: None for the first sample. at_s: seconds of any clock, the same one for all samples.
    No rate is negative, though a queue that lost its state counts from 0 again.
    """
    # A clock that stood still, or two samples at once, would divide by 0.
    seconds = 0.0 if before is None else at_s - before.at_s
    if before is None or seconds <= 0:
        return Sample(status=status, at_s=at_s, servers=servers)
    known = {report.name: report for report in before.status.actors}
    rates = {
        now.name: Rate(
            # An actor that was started again under its name counts from 0.
            groups=max(0.0, (now.groups - known[now.name].groups) / seconds),
            tokens=max(0.0, (now.tokens - known[now.name].tokens) / seconds),
        )
        for now in status.actors
        if now.name in known
    }
    trained = status.counts.get("trained", 0) - before.status.counts.get("trained", 0)
    return Sample(
        status=status,
        at_s=at_s,
        actors=rates,
        trained_per_s=max(0.0, trained / seconds),
        servers=servers,
    )


def next_load(before: Load | None, status: Status, at_s: float) -> Load:
    """The load at `at_s`, seconds of any clock; no rate where nothing is known from before."""
    seconds = 0.0 if before is None else at_s - before.at_s
    if before is None or seconds <= 0 or before.status.error or status.error:
        return Load(status=status, at_s=at_s)
    # A server that was started again counts from 0.
    sampled = max(0, status.sampled - before.status.sampled)
    return Load(status=status, at_s=at_s, tokens_per_s=sampled / seconds)


class ServerLoads:
    """Polls each server apart from the others, so that a silent one delays only itself.

        loads = ServerLoads(["http://localhost:8000"])
        await loads.look()
        loads.newest[0].tokens_per_s    # 0.0: a rate needs two looks

    urls: addresses of inference servers; their order is that of `newest`.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._newest: dict[str, Load] = {}
        self.follow(urls)

    @property
    def newest(self) -> tuple[Load, ...]:
        """Last known load of each server."""
        return tuple(self._newest.values())

    def follow(self, urls: Sequence[str]) -> None:
        """Poll these servers from now on; what is known of them stays."""
        unknown = {
            url: Load(status=Status(url=url, error="no answer yet"), at_s=0.0) for url in urls
        }
        self._newest = {url: self._newest.get(url, load) for url, load in unknown.items()}

    async def look(self) -> None:
        """Poll each server once; returns when the slowest has responded, or failed."""
        await asyncio.gather(*map(self._look_at, self._newest))

    async def keep_looking(self, every_s: float) -> None:
        """Poll each server every `every_s` seconds, until this is cancelled."""
        looks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for url in [url for url, look in looks.items() if look.done()]:
                    looks.pop(url).result()
                # A silent server has one look under way, which delays no other's.
                for url in self._newest.keys() - looks.keys():
                    looks[url] = asyncio.create_task(self._look_at(url))
                await asyncio.sleep(every_s)
        finally:
            await cancelled(looks.values())

    async def _look_at(self, url: str) -> None:
        """Replace the load of one server; a failure is a state with an error."""
        (status,) = await statuses([url])
        # After the response, which may be seconds late: the counts are those of its moment.
        now = asyncio.get_running_loop().time()
        # It may have left meanwhile.
        if url in self._newest:
            self._newest[url] = next_load(self._newest[url], status, now)
