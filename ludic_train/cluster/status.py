"""State of a run's queue and servers, as values and as tables of a terminal."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludic_gym.clients.transport import root_address
from ludic_gym.concurrency import cancel_all
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.queues.base import QueueStatus
from ludic_train.errors import PublishError
from ludic_train.sources.levels import levels_from_text

# Seconds per request. A server with a long queue responds late.
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """State and load of a server.

    version: of its params. is_paused: True between /pause and /resume.
    running, waiting: numbers of requests. cache: used share of its key-value cache, in [0, 1].
    sampled: tokens since it started.
    error: the reason for which nothing else is known; "" without one.
    """

    url: str
    version: str = ""
    is_paused: bool = False
    running: int = 0
    waiting: int = 0
    cache: float = 0.0
    sampled: int = 0
    error: str = ""


async def statuses(urls: Sequence[str]) -> list[Status]:
    """The state of each server, in the order of `urls`; requests run in parallel.

    A server without a valid response within LIMIT_S seconds has an `error`; nothing is raised.
    """
    return list(await asyncio.gather(*(_status(root_address(url)) for url in urls)))


async def _status(url: str) -> Status:
    """The state of one server, from three of its routes."""
    async with aclosing(ControlClient(url, limit_s=LIMIT_S)) as server:
        try:
            version = (await server.get("/weight_info"))["weight_version"]
            paused = (await server.get("/is_paused"))["is_paused"]
            numbers: dict[str, float] = defaultdict(float)
            for line in (await server.text("GET", "/metrics")).splitlines():
                if line and not line.startswith("#"):
                    label, _, value = line.rpartition(" ")
                    # The sum is over vLLM's engines, one per data-parallel rank.
                    numbers[label.partition("{")[0]] += float(value)
            return Status(
                url=url,
                version=str(version),
                is_paused=bool(paused),
                running=int(numbers["vllm:num_requests_running"]),
                waiting=int(numbers["vllm:num_requests_waiting"]),
                cache=numbers["vllm:kv_cache_usage_perc"],
                sampled=int(numbers["vllm:generation_tokens_total"]),
            )
        except PublishError as error:
            return Status(url=url, error=str(error))
        # OverflowError is from int(inf): Prometheus' format has infinities.
        except (KeyError, ValueError, OverflowError) as error:
            return Status(url=url, error=f"its responses differ from vLLM's: {error!r}")


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
    earlier = {report.name: report for report in before.status.actors}
    rates = {
        now.name: Rate(
            # An actor that was started again under its name counts from 0.
            groups=max(0.0, (now.groups - earlier[now.name].groups) / seconds),
            tokens=max(0.0, (now.tokens - earlier[now.name].tokens) / seconds),
        )
        for now in status.actors
        if now.name in earlier
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
            await cancel_all(looks.values())

    async def _look_at(self, url: str) -> None:
        """Replace the load of one server; a failure is a state with an error."""
        (status,) = await statuses([url])
        # After the response, which may be seconds late: the counts are those of its moment.
        now = asyncio.get_running_loop().time()
        # It may have left meanwhile.
        if url in self._newest:
            self._newest[url] = next_load(self._newest[url], status, now)


BAR = 40


def screen(sample: Sample, title: str) -> Group:
    """Queue, actors, servers if there are any, and lags, one below the other.

    title: the address of the queue, without a password.
    The result is for a `rich` console, once or in a live display.
    """
    parts: list[RenderableType] = [Text(title, style="bold"), _queue(sample), _actors(sample)]
    if sample.servers:
        parts.append(servers_table(sample.servers))
    table = Table("lag", "groups", "", title="updates between sampling and training")
    lags = sample.status.lags
    for lag, groups in lags.items():
        # The largest fills the bar, whatever the number of groups so far.
        bar = "█" * max(1, round(BAR * groups / max(lags.values())))
        table.add_row(str(lag), str(groups), bar)
    return Group(*parts, table)


def _queue(sample: Sample) -> Table:
    """Groups by where they are, or how they ended; dead letters in red if there are any."""
    status, trainer = sample.status, sample.status.trainer
    counts, dead = status.counts, status.counts.get("dead", 0)
    table = Table("groups", "", title="queue")
    rows = {
        "waiting": str(status.queued - status.pending),
        "read ahead": str(status.pending),
        "trained on": f"{counts.get('trained', 0)} ({sample.trained_per_s:.1f}/s)",
        "held for a resumed run": str(status.held),
        "too old": str(counts.get("stale", 0)),
        "pushed twice": str(counts.get("duplicate", 0)),
        "filtered away": str(counts.get("filtered", 0)),
        "lost to a run that went back": str(counts.get("lost", 0)),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    table.add_row("dead letters", Text(str(dead), style="red" if dead else ""))
    table.add_row("trainer", "none yet" if trainer is None else f"version {trainer.version}")
    for env_id, level in levels_from_text(trainer.levels if trainer else "").items():
        table.add_row("level", _plain(f"{level} of {env_id}"))
    return table


def _actors(sample: Sample) -> Table:
    """A row for each actor that lives, and their sum as the title."""
    table = Table("actor", "version", "playing", "pushed", "groups/s", "tokens/s")
    table.title = f"{len(sample.status.actors)} actors, {sample.tokens_per_s:.0f} tokens/s"
    for report in sample.status.actors:
        rate = sample.actors.get(report.name, Rate())
        table.add_row(
            _plain(report.name),
            str(report.version),
            str(report.running),
            str(report.groups),
            f"{rate.groups:.1f}",
            f"{rate.tokens:.0f}",
        )
    return table


def servers_table(loads: Sequence[Load]) -> Group:
    """A row for each server; below, the reasons for which some are silent."""
    table = Table(
        "server", "version", "state", "running", "waiting", "cache", "sampled", "tokens/s"
    )
    # An address that is wrapped cannot be copied.
    table.columns[0].no_wrap = True
    total = sum(load.tokens_per_s for load in loads)
    table.title = f"servers, {total:.0f} tokens/s"
    for load in loads:
        now = load.status
        if now.error:
            table.add_row(_plain(now.url), "", Text("silent", style="red"))
            continue
        table.add_row(
            _plain(now.url),
            _plain(now.version),
            "paused" if now.is_paused else "serving",
            str(now.running),
            str(now.waiting),
            f"{now.cache:.0%}",
            f"{now.sampled:,}",
            f"{load.tokens_per_s:.0f}",
        )
    silent = [load.status for load in loads if load.status.error]
    return Group(table, *(_plain(f"{each.url}: {each.error}", "red") for each in silent))


def _plain(name: str, style: str = "") -> Text:
    """Neither markup nor what a terminal would obey."""
    # Escape sequences of a hostile name could rewrite the screen, or fill the clipboard.
    return Text("".join(c if c.isprintable() else "?" for c in name), style=style)
