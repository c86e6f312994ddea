"""`ludic launch --only actor`: rollouts for a trainer that runs elsewhere."""

from __future__ import annotations

import asyncio
import secrets
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ludic_gym.commands.arguments import env_name
from ludic_gym.limits import RequestLimits
from ludic_train.cluster.roles import exit_code_of_role
from ludic_train.queue_urls import refuse_password
from ludic_train.runs.folder import run_recorder, started_recipe
from ludic_train.runs.tasks import training_tasks

if TYPE_CHECKING:
    from ludic_train.cluster.actor import ActorSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Play for a run of `ludic train ... --queue URL`, and push rollouts into its queue.

    The run's folder must be visible here: it holds the recipe and the params that the trainer
    publishes; or it names the inference servers, and the actor holds no model. Start as many actors
    as there are cores, anywhere, at any time, before the trainer and the servers too; Ctrl-C or
    SIGTERM lets an actor finish its groups first.

    For example:
      ludic train tic-tac-toe --queue redis://localhost:6379
      ludic launch --only actor runs/tic-tac-toe
      ludic launch --only actor runs/tic-tac-toe --queue redis://trainer:6379 --name second-machine
      ludic launch --only actor runs/tic-tac-toe --servers http://server:8000

    Attributes:
        run: Folder of the run.
        queue: URL of the queue, if it differs from the trainer's. The password of a Redis is taken
            from LUDIC_QUEUE_PASSWORD, or from the run's folder.
        servers: Addresses of the inference servers, if they differ from the trainer's.
        name: Name of this actor in `ludic status`, where a random id is added.
        seed: Seed of the tasks; actors with equal seeds play equal tasks. Random without it.
        concurrency: Number of episodes at once.
        timeout: Time limit of an episode, in seconds.
        grace: Time in which groups may be finished after Ctrl-C, in seconds.
        limits: Of requests to servers.
    """

    run: Annotated[Path, tyro.conf.Positional]
    queue: str | None = None
    servers: tuple[str, ...] = ()
    name: str | None = None
    seed: int | None = None
    concurrency: int = 64
    timeout: float | None = None
    grace: float = 30.0
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)


def main(argv: list[str]) -> int:
    """Play until the run ends or a signal arrives; the exit code."""
    options = tyro.cli(Options, args=argv, prog="ludic launch --only actor")
    refuse_password(options.queue)
    return exit_code_of_role(lambda: _played(options))


def _played(options: Options) -> int:
    summary = asyncio.run(_play(options))
    print(
        f"pushed {summary.pushed} groups; {summary.stale} became too old, "
        f"{len(summary.returned)} were not finished"
    )
    return 0


async def _play(options: Options) -> ActorSummary:
    # It renders chats, by packages that `--help` does without.
    from ludic_train.cluster.actor import ActorOptions
    from ludic_train.cluster.run_actor import play_remotely, until_published

    # Checked now: the wait for a run has no end.
    playing = ActorOptions(
        concurrency=options.concurrency, timeout_s=options.timeout, grace_s=options.grace
    )
    # An event, not an exception: the actor finishes its groups first.
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    # The recipe is in the folder, and may not be written yet.
    await until_published(options.run, stop)
    # Far from the seeds that users choose, so that no actor repeats tasks of the trainer.
    seed = 2**20 + secrets.randbits(30) if options.seed is None else options.seed
    recipe, machine = started_recipe(options.run)
    for env in recipe.envs:
        # The module of an id may lie in the current folder.
        env_name(env.id)
    config = recipe.defaults
    score = None
    if config.reward is not None:
        # It needs what grades, and most actors need none of it.
        from ludic_train.runs.rewards import score_of

        score = score_of(config.reward)
    levels: dict[str, int] = {}
    return await play_remotely(
        options.run,
        training_tasks(recipe, config, seed, levels),
        levels=levels,
        self_play=recipe.self_play,
        score=score,
        agent=config.sample.agent,
        url=options.queue,
        servers=options.servers,
        name=options.name,
        limits=options.limits,
        # Random, because actors of one name must not write to one file.
        recorder=run_recorder(options.run, machine, writer=f"actor-{secrets.token_hex(4)}"),
        options=playing,
        stop=stop,
    )
