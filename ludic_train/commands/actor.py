"""`ludic actor`: plays for a trainer that runs elsewhere."""

from __future__ import annotations

import asyncio
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.pipeline.actor import ActorOptions, ActorSummary
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.actor_loop import play_remotely, until_published
from ludic_train.runs.remote import started_with
from ludic_train.runs.train import own_algorithm

ABOUT = """Play for a run that was started with `ludic train RECIPE --queue URL`, and push what is
to be learned from into its queue. The run's folder must be visible here: it says what to play, and
holds the params that the trainer publishes; or it names the servers that sample, and the actor
holds no model. Start as many actors as there are cores, anywhere, at any time, before the trainer
and the servers too; Ctrl-C or SIGTERM lets an actor finish its groups first.

examples:
  ludic train tic-tac-toe --queue redis://localhost:6379
  ludic actor runs/tic-tac-toe
  ludic actor runs/tic-tac-toe --queue redis://trainer:6379 --name second-machine
  ludic actor runs/tic-tac-toe --sampler http://sampler:8000"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to play.

    Attributes:
        run: Folder of the run.
        queue: URL of the queue, where it has another address here than at the trainer.
        sampler: Addresses of the servers that sample, where they have others here than at the
            trainer.
        name: How `ludic top` shows this actor.
        seed: Of the tasks; actors with equal seeds play equal tasks. Drawn if left out.
        concurrency: Episodes at once.
        timeout: Seconds that an episode may take.
        grace: Seconds in which groups may be finished after Ctrl-C.
    """

    run: Annotated[Path, tyro.conf.Positional]
    queue: str | None = None
    sampler: tuple[str, ...] = ()
    name: str | None = None
    seed: int | None = None
    concurrency: int = 64
    timeout: float | None = None
    grace: float = 30.0


def main(argv: list[str]) -> int:
    """Play until asked to stop; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic actor", description=ABOUT)
    summary = asyncio.run(_play(options))
    print(
        f"pushed {summary.pushed} groups; {summary.unused} taught nothing, {summary.stale} became "
        f"too old, {len(summary.returned)} were not finished"
    )
    return 0


async def _play(options: Options) -> ActorSummary:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    await until_published(options.run, stop)
    started = started_with(options.run)
    if started["recipe"] not in RECIPES:
        raise ConfigError(f"{options.run} is a run of {started['recipe']!r}, which is unknown here")
    # Far from the seeds that people choose, so that no actor plays what the trainer did.
    seed = 2**20 + secrets.randbits(30) if options.seed is None else options.seed
    return await play_remotely(
        options.run,
        own_algorithm(float(started["entropy"])),
        RECIPES[started["recipe"]].tasks(seed),
        url=options.queue,
        samplers=options.sampler,
        name=options.name,
        options=ActorOptions(
            group_size=int(started["group_size"]),
            concurrency=options.concurrency,
            timeout_s=options.timeout,
            grace_s=options.grace,
        ),
        stop=stop,
    )
