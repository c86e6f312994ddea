"""`ludic top`: a pipeline at a glance, again and again."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ludic_gym.errors import ConfigError
from ludic_train.errors import QueueUnavailable
from ludic_train.pipeline.queues.base import GroupQueue
from ludic_train.pipeline.queues.open_queue import open_queue
from ludic_train.runs.folder import QUEUE, Address, read_address
from ludic_train.top.prometheus import serve_metrics
from ludic_train.top.sample import Sample, ServerLoads, next_sample
from ludic_train.top.screen import screen

ABOUT = """Show the queue between actors and a trainer: how many groups wait, what became of the
others, who plays how fast with which params, how busy the servers are that sample, and how old
groups were when they were trained on.

examples:
  ludic top runs/tic-tac-toe
  ludic top redis://localhost:6379 --key my-queue --servers http://localhost:8000
  ludic top runs/tic-tac-toe --prometheus 9464"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to show.

    Attributes:
        where: Folder of a run, or URL of a queue.
        key: Of the queue, with a URL.
        queue: URL of a run's queue, where it has another address here than at the trainer.
        servers: Addresses of the inference servers, where they have others here than at the
            trainer.
        interval: Seconds between two looks.
        once: Look once, print, and end.
        prometheus: Port on which to answer /metrics too.
        host: Address on which to answer.
    """

    where: Annotated[str, tyro.conf.Positional]
    key: str | None = None
    queue: str | None = None
    servers: tuple[str, ...] = ()
    interval: float = 1.0
    once: bool = False
    prometheus: int | None = None
    host: str = "127.0.0.1"


def main(argv: list[str]) -> int:
    """Show until Ctrl-C; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic top", description=ABOUT)
    asyncio.run(_show(address_of(options), options))
    return 0


def address_of(options: Options) -> Address:
    """The queue, and the servers. Raises ConfigError where it is not known which."""
    if "://" in options.where:
        if options.key is None:
            raise ConfigError(f"which queue at {options.where}? Say --key, or name a run's folder")
        return Address(url=options.where, key=options.key, servers=options.servers)
    found = read_address(Path(options.where))
    if found is None:
        path = Path(options.where) / QUEUE
        raise ConfigError(f"{path} does not exist: {options.where} is no run with --queue")
    return Address(
        url=options.queue or found.url,
        key=options.key or found.key,
        servers=options.servers or found.servers,
    )


async def _show(address: Address, options: Options) -> None:
    console, loads = Console(), ServerLoads(address.servers)
    async with AsyncExitStack() as stack:
        queue = open_queue(address.url, address.key)
        stack.push_async_callback(queue.aclose)
        sample = next_sample(None, await queue.status(), time.monotonic(), loads.newest)
        if options.once:
            await loads.look()
            console.print(screen(replace(sample, servers=loads.newest), address.key))
            return
        looking = asyncio.create_task(loads.keep_looking(options.interval))
        stack.callback(looking.cancel)
        if options.prometheus is not None:
            runner = await serve_metrics(lambda: sample, host=options.host, port=options.prometheus)
            stack.push_async_callback(runner.cleanup)
        live = stack.enter_context(Live(screen(sample, address.key), console=console))
        while True:
            await asyncio.sleep(options.interval)
            sample, trouble = await look(queue, sample, loads)
            live.update(Group(screen(sample, address.key), Text(trouble, style="red")))


async def look(queue: GroupQueue, before: Sample, loads: ServerLoads) -> tuple[Sample, str]:
    """What there is to see now; of a queue that does not answer what was before, and the reason."""
    try:
        status = await queue.status()
    except QueueUnavailable as error:
        return replace(before, servers=loads.newest), f"the queue does not answer: {error}"
    return next_sample(before, status, time.monotonic(), loads.newest), ""
