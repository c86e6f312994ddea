"""Wasted tokens of a run that is interrupted, with and without continuing what was begun.

    python benchmarks/partial_rollouts.py [--groups 300] [--every 5000]

A Redis, two `ludic serve` processes of a tiny model, and actors that play groups of four episodes
of one reply each. Lengths are log-normal: the median is 150 tokens, one in a hundred has 1,500.
After every `every` sampled tokens something happens, in turn: a server is killed with kill -9 and
started again; the actor is stopped, and another one begins; new params are published.

    again      groups that are interrupted are played again, and requests sent again
    continued  slices of 16 tokens, a sixteenth of the default as the lengths are of those of models
               that think; what an actor has begun is handed over

The servers' own counts say what was sampled, that of a server that is killed from just before.
Wasted is what is in no group at the end. The trainer takes all that is pushed, however old it is.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from redis_server import free_port, redis_server
from rich.console import Console
from rich.table import Table

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Sampling, Task
from ludic_train.cluster.actor import run_pipeline_actor
from ludic_train.cluster.actor_options import ActorOptions, ActorSummary
from ludic_train.cluster.begun import ResumableClient
from ludic_train.cluster.codec import group_from_bytes
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.cluster.queues.base import Progress, Trained, TrainerReport
from ludic_train.cluster.queues.open_queue import opened_roster
from ludic_train.cluster.queues.redis_stream import RedisQueue
from ludic_train.cluster.server_versions import ServedVersions
from ludic_train.cluster.servers.process import responds
from ludic_train.cluster.servers.server_status import statuses
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

MEMBERS, CONCURRENCY, SLICE, WHOLE = 4, 32, 16, 10**9
TOKENIZER = make_tokenizer(["What is 12 + 34? = 0123456789"])


def tasks(groups: int) -> list[Task]:
    """Tasks whose replies have lengths with a long tail."""
    rng = random.Random(0)
    lengths = [min(1_900, round(rng.lognormvariate(5.0, 1.0))) for _ in range(groups)]
    return [
        Task(
            env_id="ludic/Arithmetic-v0",
            seed=seed,
            sampling=Sampling(max_tokens=max(1, length), seed=seed),
        )
        for seed, length in enumerate(lengths)
    ]


@dataclass
class Servers:
    """Two servers, and the tokens of those that were killed."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    of_killed: int = 0
    version: int = -1

    @property
    def urls(self) -> list[str]:
        """Their addresses."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    async def start(self, number: int) -> None:
        """Start a server, and wait for it."""
        words = ["serve", str(self.folder), "--engine", "local", "--port", str(self.ports[number])]
        command = [sys.executable, "-m", "ludic_gym", *words]
        self.processes[number] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not await asyncio.to_thread(responds, self.urls[number]):
            await asyncio.sleep(0.1)

    async def sampled(self) -> int:
        """Tokens of all servers so far."""
        return self.of_killed + sum(each.sampled for each in await statuses(self.urls))

    async def publish(self) -> None:
        """Push the next version to both."""
        self.version += 1
        model = make_tiny_model(TOKENIZER, seed=0)
        await VLLMPublisher(self.urls).publish(model.named_parameters(), self.version)

    async def replace(self, number: int) -> None:
        """Kill a server, and have another one in its place with the params."""
        (before,) = await statuses([self.urls[number]])
        self.processes[number].kill()
        self.processes[number].wait()
        self.of_killed += before.sampled
        await self.start(number)
        await self.publish()


async def act(
    servers: Servers, url: str, key: str, own: Iterator[Task], stop: asyncio.Event, slices: int
) -> ActorSummary:
    """One actor, until `stop`."""
    inner = VLLMTokenClient(servers.urls, chat_renderer(TOKENIZER), seeds=False)
    client = ResumableClient(
        inner, lambda ids: str(TOKENIZER.decode(list(ids))), slice_tokens=slices
    )
    served, queue = ServedVersions(servers.urls, [inner]), RedisQueue(url, key)
    async with AsyncExitStack() as stack:
        for each in (queue, served, inner):
            stack.push_async_callback(each.aclose)
        roster = await stack.enter_async_context(opened_roster(url, key))
        return await run_pipeline_actor(
            own,
            lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""),
            queue,
            served.refresh,
            ActorOptions(concurrency=CONCURRENCY, grace_s=0.0, heartbeat_s=0.2),
            stop=stop,
            roster=roster if slices != WHOLE else None,
        )


async def acting(
    servers: Servers, url: str, key: str, todo: list[Task], stops: list[asyncio.Event], slices: int
) -> None:
    """One actor after the other, until all tasks are played; one plays what another returned."""
    while not stops or stops[-1].is_set():
        stops.append(asyncio.Event())
        summary = await act(servers, url, key, _taken(todo), stops[-1], slices)
        todo[:0] = summary.returned


def _taken(todo: list[Task]) -> Iterator[Task]:
    while todo:
        yield todo.pop(0)


async def interrupting(
    servers: Servers, todo: list[Task], stops: list[asyncio.Event], every: int
) -> int:
    """Interrupt the run after each so many tokens, as long as tasks are left; how often."""
    due, times = every, 0
    for event in cycle(["kill 0", "stop", "publish", "kill 1", "stop"]):
        while (sampled := await servers.sampled()) < due and todo:
            await asyncio.sleep(0.02)
        if not todo:
            return times
        times, due = times + 1, sampled + every
        if event == "stop":
            stops[-1].set()
        elif event == "publish":
            await servers.publish()
        else:
            await servers.replace(int(event[-1]))
    raise AssertionError("a cycle does not end")


async def reading(queue: RedisQueue, report: TrainerReport, kept: dict[str, int]) -> None:
    """Take each group that comes, and note its tokens; until cancelled."""
    while True:
        for entry in await queue.read(1):
            group = group_from_bytes(entry.data)
            kept[entry.key] = sum(int(row.action_mask.sum()) for row in group.rows)
            trained = [Trained(id=entry.id, key=entry.key, lag=None)]
            progress = Progress(
                trainer=report, trained=trained, total=len(kept), release=[entry.id]
            )
            await queue.settle(progress)


@dataclass(frozen=True)
class Outcome:
    """Tokens sampled, and those in groups; groups, interruptions and seconds."""

    sampled: int
    kept: int
    groups: int
    interruptions: int
    seconds: float

    @property
    def wasted(self) -> int:
        """Tokens that are in no group."""
        return self.sampled - self.kept


async def measure(url: str, slices: int, groups: int, every: int) -> Outcome:
    """Play all episodes in slices of so many tokens, and kill the servers meanwhile."""
    key, todo, stops = f"partial-{slices}", tasks(groups), list[asyncio.Event]()
    kept: dict[str, int] = {}
    queue = RedisQueue(url, key)
    report = TrainerReport(version=0, groups_per_batch=CONCURRENCY, group_size=MEMBERS)
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder))
        save_model(make_tiny_model(TOKENIZER, seed=0), TOKENIZER, servers.folder)
        try:
            await asyncio.gather(servers.start(0), servers.start(1))
            await servers.publish()
            await queue.take_over(report, kept="", total=0)
            started = time.perf_counter()
            reader = asyncio.create_task(reading(queue, report, kept))
            interrupter = asyncio.create_task(interrupting(servers, todo, stops, every))
            await acting(servers, url, key, todo, stops, slices)
            seconds, times = time.perf_counter() - started, await interrupter
            while (await queue.status()).queued:
                await asyncio.sleep(0.05)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            sampled = await servers.sampled()
            return Outcome(sampled, sum(kept.values()), len(kept), times, seconds)
        finally:
            for process in servers.processes.values():
                process.kill()
                process.wait()
            await queue.aclose()


async def compare(url: str, groups: int, every: int) -> Table:
    """Both ways, one after the other."""
    table = Table("way", "groups", "interruptions", "tokens kept", "wasted", "share", "seconds")
    found = {
        "again": await measure(url, WHOLE, groups, every),
        "continued": await measure(url, SLICE, groups, every),
    }
    for way, one in found.items():
        row = [one.groups, one.interruptions, one.kept, one.wasted]
        table.add_row(way, *map(str, row), f"{one.wasted / one.kept:.1%}", f"{one.seconds:.0f}")
    again, continued = found["again"], found["continued"]
    # A run that plays more again is interrupted more often.
    each = (again.wasted / again.interruptions) / (continued.wasted / continued.interruptions)
    print(f"wasted: {again.wasted / continued.wasted:.1f} x, per interruption {each:.1f} x")
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--every", type=int, default=5_000, help="tokens between interruptions")
    arguments = parser.parse_args()
    with redis_server() as url:
        Console().print(asyncio.run(compare(url, arguments.groups, arguments.every)))


if __name__ == "__main__":
    main()
