"""`ludic top`: a live view of a pipeline."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ludic_gym.errors import ConfigError
from ludic_train.cluster.address import Address, read_address
from ludic_train.cluster.queues.base import GroupQueue
from ludic_train.cluster.queues.open_queue import open_queue, open_registry
from ludic_train.cluster.status.sample import Sample, ServerLoads, next_sample
from ludic_train.cluster.status.screen import screen
from ludic_train.errors import QueueUnavailable
from ludic_train.queue_urls import refuse_password
from ludic_train.runs.folder import QUEUE
from ludic_train.runs.machine import JOIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Show the queue between actors and a trainer.

    That is: the number of groups that wait and what became of the others, the speed and version of
    each actor, the load of the inference servers, and the lag of groups when they were trained on.

    For example:
      ludic top runs/tic-tac-toe
      ludic top redis://localhost:6379 --key my-queue --servers http://localhost:8000
      ludic top runs/tic-tac-toe --prometheus 9464
      ludic top runs/tic-tac-toe --once --json

    Attributes:
        where: Folder of a run, or URL of a queue. The password of a Redis is taken from
            LUDIC_QUEUE_PASSWORD, or from the run's folder.
        key: Key of the queue, with a URL.
        queue: URL of a run's queue, if it differs from the trainer's.
        servers: Addresses of the inference servers, if they differ from the trainer's.
        interval: Seconds between two updates.
        once: Print once, and end.
        json: Print a JSON object per update, one a line, in place of the view.
        prometheus: Port to serve /metrics on.
        host: Address to serve /metrics on.
    """

    where: Annotated[str, tyro.conf.Positional]
    key: str | None = None
    queue: str | None = None
    servers: tuple[str, ...] = ()
    interval: float = 1.0
    once: bool = False
    json: bool = False
    prometheus: int | None = None
    host: str = "127.0.0.1"


def main(argv: list[str]) -> int:
    """Show until Ctrl-C; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic top")
    for url in (options.where, options.queue):
        refuse_password(url)
    # With 0 it would poll the queue without a pause.
    if not 0 < options.interval < math.inf:
        raise ConfigError(f"interval={options.interval:g} s must be above 0")
    asyncio.run(_show(address_of(options), options))
    return 0


def address_of(options: Options) -> Address:
    """The queue and the servers. Raises ConfigError for a queue without a key, or no run."""
    if "://" in options.where:
        if options.key is None:
            raise ConfigError(f"which queue at {options.where}? Give --key, or name a run's folder")
        return Address(url=options.where, key=options.key, servers=options.servers)
    found = read_address(Path(options.where))
    if found is None:
        path = Path(options.where) / QUEUE
        raise ConfigError(f"{path} does not exist: {options.where} is no run with --queue")
    return Address(
        url=options.queue or found.url,
        key=options.key or found.key,
        servers=options.servers or found.servers,
        password=found.password,
    )


async def _show(address: Address, options: Options) -> None:
    """Draw samples until cancelled, or one with `once`."""
    fixed = [server for server in address.servers if server != JOIN]
    console, loads = Console(), ServerLoads(fixed)
    async with AsyncExitStack() as stack:
        roster = None
        if JOIN in address.servers:
            opened = open_registry(address.url, address.key, address.password)
            roster = await stack.enter_async_context(opened)
            loads.follow([*fixed, *await roster.servers()])
        queue = open_queue(address.url, address.key, password=address.password)
        stack.push_async_callback(queue.aclose)
        # Once before the screen opens, so that a queue that is down is an error at once.
        sample = next_sample(None, await queue.status(), time.monotonic(), loads.newest)
        if options.once:
            await loads.look()
            sample = replace(sample, servers=loads.newest)
            if options.json:
                print_json(sample)
            else:
                console.print(screen(sample, address.key))
            return
        # Beside the queue's updates, so that a silent server delays nothing.
        looking = asyncio.create_task(loads.keep_looking(options.interval))
        stack.callback(looking.cancel)
        if options.prometheus is not None:
            # A web server, which takes longer to import than all else here.
            from ludic_train.cluster.status.prometheus import serve_metrics

            runner = await serve_metrics(lambda: sample, host=options.host, port=options.prometheus)
            stack.push_async_callback(runner.cleanup)
        live = None
        if not options.json:
            live = stack.enter_context(Live(screen(sample, address.key), console=console))
        while True:
            await asyncio.sleep(options.interval)
            sample, trouble = await look(queue, sample, loads)
            if roster is not None and not trouble:
                # The next look at the queue reports it.
                with suppress(QueueUnavailable):
                    loads.follow([*fixed, *await roster.servers()])
            if live is not None:
                live.update(Group(screen(sample, address.key), Text(trouble, style="red")))
            elif trouble:
                print(trouble, file=sys.stderr)
            else:
                print_json(sample)


def print_json(sample: Sample) -> None:
    """Print the sample as a line of JSON; numbers that are unknown are null."""
    print(msgspec.json.encode(sample).decode(), flush=True)


async def look(queue: GroupQueue, before: Sample, loads: ServerLoads) -> tuple[Sample, str]:
    """The next sample; without a response of the queue the one before, and the reason."""
    try:
        status = await queue.status()
    except QueueUnavailable as error:
        return replace(before, servers=loads.newest), f"the queue does not respond: {error}"
    return next_sample(before, status, time.monotonic(), loads.newest), ""
