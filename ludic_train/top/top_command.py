"""`ludic top`: a pipeline at a glance, again and again."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.live import Live

from ludic_gym.errors import ConfigError
from ludic_train.queues.base import GroupQueue
from ludic_train.queues.urls import open_queue
from ludic_train.recipes.remote import QUEUE
from ludic_train.top.prometheus import serve_metrics
from ludic_train.top.sample import next_sample
from ludic_train.top.screen import screen

ABOUT = """Show the queue between actors and a trainer: how many groups wait, what became of the
others, who plays how fast with which params, and how old groups were when they were trained on.

examples:
  ludic top runs/tic-tac-toe
  ludic top redis://localhost:6379 --key my-queue
  ludic top runs/tic-tac-toe --prometheus 9464"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to show.

    Attributes:
        where: Folder of a run, or URL of a queue.
        key: Of the queue, with a URL.
        queue: URL of a run's queue, where it has another address here than at the trainer.
        interval: Seconds between two looks.
        once: Look once, print, and end.
        prometheus: Port on which to answer /metrics too.
        host: Address on which to answer.
    """

    where: Annotated[str, tyro.conf.Positional]
    key: str | None = None
    queue: str | None = None
    interval: float = 1.0
    once: bool = False
    prometheus: int | None = None
    host: str = "127.0.0.1"


def top(argv: list[str]) -> int:
    """Show until Ctrl-C; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic top", description=ABOUT)
    url, key = queue_of(options)
    asyncio.run(_show(open_queue(url, key), key, options))
    return 0


def queue_of(options: Options) -> tuple[str, str]:
    """URL and key. Raises ConfigError where either is missing."""
    if "://" in options.where:
        if options.key is None:
            raise ConfigError(f"which queue at {options.where}? Say --key, or name a run's folder")
        return options.where, options.key
    path = Path(options.where) / QUEUE
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: {options.where} is no run with --queue")
    found = json.loads(path.read_text(encoding="utf-8"))
    return options.queue or found["url"], options.key or found["key"]


async def _show(queue: GroupQueue, title: str, options: Options) -> None:
    console = Console()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.aclose)
        sample = next_sample(None, await queue.status(), time.monotonic())
        if options.once:
            console.print(screen(sample, title))
            return
        if options.prometheus is not None:
            runner = await serve_metrics(lambda: sample, host=options.host, port=options.prometheus)
            stack.push_async_callback(runner.cleanup)
        live = stack.enter_context(Live(screen(sample, title), console=console))
        while True:
            await asyncio.sleep(options.interval)
            sample = next_sample(sample, await queue.status(), time.monotonic())
            live.update(screen(sample, title))
