"""`ludic status`: state and load of inference servers, or of a whole run with a queue."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ludic_gym.commands.arguments import print_json
from ludic_gym.commands.arguments import screen as console_of_output
from ludic_gym.errors import ConfigError
from ludic_train.cluster.address import Address, read_address
from ludic_train.cluster.queues.base import GroupQueue
from ludic_train.cluster.queues.open_queue import open_queue, open_registry
from ludic_train.cluster.status import (
    Sample,
    ServerLoads,
    next_sample,
    screen,
    servers_table,
)
from ludic_train.errors import QueueUnavailable
from ludic_train.queue_urls import refuse_password
from ludic_train.runs.folder import QUEUE
from ludic_train.runs.machine import JOIN

# Exit code, so that a script can wait until all servers respond.
UNREACHABLE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Show the state and load of inference servers, or of a run with a queue.

    Of servers: version, state, running and waiting requests, and the used share of the cache; the
    exit code is 1 if one gives no valid response. Of a run: these, the groups that wait and what
    became of the others, the speed and version of each actor, and the lag of the groups that were
    trained on.

    For example:
      ludic status http://node1:8000 http://node2:8000
      ludic status runs/tic-tac-toe --watch
      ludic status redis://localhost:6379 --key my-queue --servers http://localhost:8000
      ludic status runs/tic-tac-toe --json

    Attributes:
        where: Addresses of servers; or the folder of a run, or the URL of a queue. The password of
            a Redis is taken from LUDIC_QUEUE_PASSWORD, or from the run's folder.
        watch: Show a run until Ctrl-C.
        key: Key of the queue, with the URL of one.
        queue: URL of a run's queue, if it differs from the trainer's.
        servers: Addresses of a run's servers, if they differ from the trainer's.
        interval: Seconds between two updates.
        json: Print JSON in place of tables; with --watch, an object a line per update.
    """

    where: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    watch: bool = False
    key: str | None = None
    queue: str | None = None
    servers: tuple[str, ...] = ()
    interval: float = 1.0
    json: bool = False


def main(argv: list[str]) -> int:
    """Show the state once, or until Ctrl-C; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic status")
    if not options.where:
        raise ConfigError(
            "name the folder of a run, or the address of a server, such as http://localhost:8000"
        )
    for url in (*options.where, options.queue):
        refuse_password(url)
    # With 0 it would poll the queue without a pause.
    if not 0 < options.interval < math.inf:
        raise ConfigError(f"interval={options.interval:g} s must be above 0")
    if all(each.startswith(("http://", "https://")) for each in options.where):
        if options.watch:
            raise ConfigError("name the folder of a run to watch it; servers are shown once")
        return asyncio.run(_show_servers(options))
    if len(options.where) > 1:
        raise ConfigError(f"{' '.join(options.where)}: name one run or queue, or servers alone")
    asyncio.run(_show_run(_address(options), options))
    return 0


async def _show_servers(options: Options) -> int:
    loads = ServerLoads(options.where)
    await loads.look()
    if options.json:
        print_json([asdict(load.status) for load in loads.newest])
    else:
        console_of_output().print(servers_table(loads.newest))
    return UNREACHABLE if any(load.status.error for load in loads.newest) else 0


def _address(options: Options) -> Address:
    """The queue and the servers. Raises ConfigError for a queue without a key, or no run."""
    (where,) = options.where
    if "://" in where:
        if options.key is None:
            raise ConfigError(f"which queue at {where}? Give --key, or name a run's folder")
        return Address(url=where, key=options.key, servers=options.servers)
    address = read_address(Path(where))
    if address is None:
        raise ConfigError(f"{Path(where) / QUEUE} does not exist: {where} is no run with --queue")
    return replace(
        address,
        url=options.queue or address.url,
        key=options.key or address.key,
        servers=options.servers or address.servers,
    )


async def _show_run(address: Address, options: Options) -> None:
    fixed = [server for server in address.servers if server != JOIN]
    console, loads = console_of_output(), ServerLoads(fixed)
    async with AsyncExitStack() as stack:
        registry = None
        if JOIN in address.servers:
            opening = open_registry(address.url, address.key, address.password)
            registry = await stack.enter_async_context(opening)
            loads.follow([*fixed, *await registry.servers()])
        queue = open_queue(address.url, address.key, password=address.password)
        stack.push_async_callback(queue.aclose)
        # Once before the screen opens, so that a queue that is down is an error at once.
        sample = next_sample(None, await queue.status(), time.monotonic(), loads.newest)
        if not options.watch:
            await loads.look()
            sample = replace(sample, servers=loads.newest)
            if options.json:
                _print_line(sample)
            else:
                console.print(screen(sample, address.key))
            return
        # Beside the queue's updates, so that a silent server delays nothing.
        looking = asyncio.create_task(loads.keep_looking(options.interval))
        stack.callback(looking.cancel)
        live = None
        if not options.json:
            live = stack.enter_context(Live(screen(sample, address.key), console=console))
        while True:
            await asyncio.sleep(options.interval)
            sample, trouble = await look(queue, sample, loads)
            if registry is not None and not trouble:
                # The next look at the queue reports it.
                with suppress(QueueUnavailable):
                    loads.follow([*fixed, *await registry.servers()])
            if live is not None:
                live.update(Group(screen(sample, address.key), Text(trouble, style="red")))
            elif trouble:
                print(trouble, file=sys.stderr)
            else:
                _print_line(sample)


def _print_line(sample: Sample) -> None:
    print(msgspec.json.encode(sample).decode(), flush=True)


async def look(queue: GroupQueue, before: Sample, loads: ServerLoads) -> tuple[Sample, str]:
    """The next sample; without a response of the queue the one before, and the reason."""
    try:
        status = await queue.status()
    except QueueUnavailable as error:
        return replace(before, servers=loads.newest), f"the queue does not respond: {error}"
    return next_sample(before, status, time.monotonic(), loads.newest), ""
