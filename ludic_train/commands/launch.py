"""`ludic launch`: all processes of a pipeline, started and stopped together."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_gym.commands.arguments import readable_env_errors
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.packages import optional
from ludic_train.cluster.layout import Layout, cards_env, layout_of
from ludic_train.cluster.roles import HOST, POLL_S, PORT, Place, ProcessGroup, start_redis
from ludic_train.cluster.servers.vllm_command import SERVED_DTYPES, find_vllm
from ludic_train.commands.actor import main as run_actor
from ludic_train.commands.train import parsed
from ludic_train.commands.train_options import TaskOptions
from ludic_train.disk import writing
from ludic_train.processes import (
    FAILED,
    INTERRUPTED,
    free_port,
    last_lines,
    stop_handler,
    without_options,
)
from ludic_train.queue_urls import PASSWORD_VARIABLE, REDIS, refuse_password
from ludic_train.runs.folder import PUBLISHED, QUEUE, is_resumable, started_recipe
from ludic_train.runs.machine import JOIN
from ludic_train.server_tokens import KEY_VARIABLE

LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Start Redis, servers, actors and the trainer of a run, on this machine or in a Ray cluster.

    Each has a log in the run's folder. All are stopped together: when training has ended, when one
    of them fails, or at Ctrl-C, which saves; a second Ctrl-C ends them at once. Arguments after
    `--` go to `ludic train`.

    For example:
      ludic launch tic-tac-toe --redis
      ludic launch tic-tac-toe --actors 3 --redis -- --seed 1 --updates 400
      ludic launch tic-tac-toe --servers 0 --queue redis://redis-host:6379 --out runs/mine
      ludic launch gsm8k --redis --engine vllm --vllm-python vllm/bin/python -- --model runs/warm
      ludic launch tic-tac-toe --on ray --redis --out /shared/runs/mine
      ludic launch --only actor runs/tic-tac-toe --name second-machine

    Attributes:
        names: Environments or a recipe, as for `ludic train`.
        only: "actor" starts one actor of the run in a folder, on this machine or another one;
            `ludic launch --only actor --help` lists its options.
        harness: How the model plays, as for `ludic train`; actors read it from the run's folder.
        out: Folder of the run; logs/ in it gets a log per process.
        actors: Number of actors.
        servers: Number of inference servers; with 0, each actor samples by itself.
        engine: Engine of the servers: Ludic's local engine, or vLLM.
        vllm_python: The Python that has vLLM; without it, the one that runs this, or that of the
            command `vllm`.
        redis: Start a Redis of this run's own, on a free port, that keeps its data in the folder.
        queue: URL of the queue otherwise; file://PATH needs no server. The password of a Redis is
            taken from LUDIC_QUEUE_PASSWORD.
        threads: Threads that each process may compute with.
        gpus: CUDA cards for servers and ranks together, on this machine: the last ones for the
            servers, and one rank on each of the others. Without it, each role takes the cards that
            it finds.
        tensor_parallel: With --gpus, cards of each server; 1 without it.
        on: "local", this machine, where a process that ends ends all; "ray", the Ray cluster that
            this machine belongs to or else one of this machine alone; or the address of a cluster,
            such as HOST:6379 or ray://HOST:10001. Ray starts roles again that fail, on other nodes
            if need be. All nodes have the same software and share the run's folder.
        ranks: Ranks of the trainer in a Ray cluster, which shard the model (FSDP2).
        role_cpus: CPUs that Ray reserves for a rank, a server or an actor.
        rank_gpus: GPUs that Ray reserves for a rank.
        server_gpus: GPUs that Ray reserves for a server.
        limits: Of the requests of each actor to the servers.
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    only: Literal["actor"] | None = None
    harness: str | None = None
    out: Path | None = None
    actors: int = 2
    servers: int = 1
    engine: Literal["local", "vllm"] = "local"
    vllm_python: str | None = None
    redis: bool = False
    queue: str | None = None
    threads: int = 1
    gpus: int | None = None
    tensor_parallel: int | None = None
    on: str = LOCAL
    ranks: int = 1
    role_cpus: float = 1.0
    rank_gpus: float = 0.0
    server_gpus: float = 0.0
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)


# Options that describe tasks: a resumed run has them in its folder, and refuses them.
TASK_OPTIONS = ("--config", *(f"--{each.name.replace('_', '-')}" for each in fields(TaskOptions)))
# The module and not the script: the script may belong to another Python on PATH.
LUDIC = (sys.executable, "-m", "ludic_gym")


def main(argv: list[str]) -> int:
    """Run a pipeline to its end; the exit code is the trainer's, or with --only an actor's."""
    if "--only" in argv[:2]:
        at = argv.index("--only")
        if argv[at + 1 : at + 2] != ["actor"]:
            raise ConfigError(
                "--only actor starts an actor; a trainer is started by `ludic train --queue`, and "
                "a server by `ludic serve`"
            )
        return run_actor([*argv[:at], *argv[at + 2 :]])
    at = argv.index("--") if "--" in argv else len(argv)
    words, further = argv[:at], argv[at + 1 :]
    options = tyro.cli(Options, args=words, prog="ludic launch")
    if options.harness is not None:
        further = ["--harness", options.harness, *further]
    _check(options, further)
    # Its errors should come before anything is started.
    with readable_env_errors():
        out = options.out or parsed(options.names, further).settings.out
        cards = _cards(options, further)
    logs = out / "logs"
    # A resumed run appends to the logs of the earlier one.
    with writing(logs, ConfigError):
        logs.mkdir(parents=True, exist_ok=True)
    # A list, because the handler can only note: what is to be done depends on where the program is.
    signals: list[int] = []
    with _place(options, out, logs) as place:

        def note(signum: int, frame: object) -> None:
            signals.append(signum)
            if len(signals) > 1:
                # All that waits for a role then ends by itself.
                place.kill()

        with stop_handler(note):
            try:
                code = _run(options, out, further, place, lambda: len(signals), cards)
            finally:
                place.stop()
    if code and is_resumable(out):
        print(f"resume   ludic launch {shlex.join(words)} -- --resume")
    return code


@contextmanager
def _place(options: Options, out: Path, logs: Path) -> Iterator[Place]:
    """Where the roles run. Raises MissingPackage without Ray, and as `connect`."""
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    if options.on == LOCAL:
        yield ProcessGroup(logs, {**os.environ, **threads})
        return
    optional("ray", "ludic-gym[ray]")
    # Of an extra, and large.
    from ludic_train.cluster.ray_cluster import RayRoles, connect, disconnect

    gpus = options.ranks * options.rank_gpus + options.servers * options.server_gpus
    roles = options.ranks + options.servers + options.actors
    # Other machines cannot read the file of a token, which is enough on one.
    variables = threads | {KEY_VARIABLE: os.environ.get(KEY_VARIABLE) or secrets.token_urlsafe(24)}
    if password := os.environ.get(PASSWORD_VARIABLE):
        variables[PASSWORD_VARIABLE] = password
    connect(options.on, roles * options.role_cpus, gpus)
    try:
        yield RayRoles(
            logs=logs,
            env=variables,
            out=out,
            cpus=options.role_cpus,
            ranks=options.ranks,
            rank_gpus=options.rank_gpus,
            server_gpus=options.server_gpus,
        )
    finally:
        disconnect()


def _cards(options: Options, further: Sequence[str]) -> Layout | None:
    """The cards of servers and ranks, printed; None where each role takes what it finds."""
    if options.gpus is None:
        return None
    cards = layout_of(
        os.environ,
        device=parsed(options.names, further).machine.device,
        gpus=options.gpus,
        servers=options.servers,
        engine=options.engine,
        tensor_parallel=options.tensor_parallel,
    )
    print(cards, flush=True)
    return cards


def _check(options: Options, further: Sequence[str]) -> None:
    refuse_password(options.queue)
    if options.actors < 1:
        raise ConfigError(f"actors={options.actors}; at least one must play")
    if options.servers < 0:
        raise ConfigError(f"servers={options.servers}; 0 lets each actor sample by itself")
    if options.threads < 1:
        raise ConfigError(f"threads={options.threads}; a process needs one to compute with")
    if options.redis == (options.queue is not None):
        raise ConfigError(f"redis={options.redis} and queue={options.queue}; give one of the two")
    if options.vllm_python is not None and options.engine != "vllm":
        raise ConfigError(f"vllm_python={options.vllm_python!r} is for --engine vllm")
    if options.on == LOCAL:
        _check_local(options)
    else:
        _check_ray(options, further)
    if options.gpus is not None and _names_gpus(further):
        raise ConfigError(f"gpus={options.gpus} and -- --gpus: give one; the first deals out cards")
    if options.servers and any(word.partition("=")[0] == "--engine" for word in further):
        raise ConfigError(
            f"servers={options.servers} would be started beside those that --engine names; add "
            "--servers 0"
        )


def _check_local(options: Options) -> None:
    if options.tensor_parallel is not None and options.gpus is None:
        raise ConfigError(f"tensor_parallel={options.tensor_parallel} is for servers on --gpus")
    usual = Options(names=())
    for name in ("ranks", "role_cpus", "rank_gpus", "server_gpus"):
        if (value := getattr(options, name)) != getattr(usual, name):
            remedy = "; here, take -- --gpus N" if name == "ranks" else ""
            raise ConfigError(f"{name}={value} is for --on ray{remedy}")
    if options.servers and options.engine == "vllm":
        # Its errors should come before the trainer has been started.
        find_vllm(options.vllm_python)


def _check_ray(options: Options, further: Sequence[str]) -> None:
    if options.ranks < 1:
        raise ConfigError(f"ranks={options.ranks}; at least one rank must train")
    if options.queue is not None and not options.queue.startswith(REDIS):
        raise ConfigError(f"queue={options.queue} is of one machine; take --redis, or a Redis")
    if options.redis and options.on.startswith("ray://"):
        raise ConfigError(
            f"on={options.on} with --redis, which runs beside this program, and here none of the "
            "cluster can reach it: give --queue, or launch on a node of the cluster, --on ray"
        )
    if options.gpus is not None or _names_gpus(further):
        raise ConfigError("--gpus starts ranks on one machine; with --on, take --ranks")


def _names_gpus(words: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == "--gpus" for word in words)


def _run(
    options: Options,
    out: Path,
    further: Sequence[str],
    place: Place,
    stops: Callable[[], int],
    cards: Layout | None = None,
) -> int:
    """Start all roles and wait for the first that ends; the exit code.

    stops: number of signals that requested a stop. cards: None has each role take what it finds.
    """
    url = options.queue or start_redis(place, out / "redis")
    # The trainer writes them into the folder for the actors, so they are chosen before the servers
    # start. A server whose port was taken meanwhile ends, and all others with it.
    ports = [free_port() for _ in range(options.servers if options.on == LOCAL else 0)]
    began = time.time()
    _start_trainer(options, out, url, ports, further, place, cards)
    queue = out / QUEUE
    while place.ended() is None and not stops():
        # The address that an earlier run left in the folder would send actors to its queue. Some
        # file systems round to whole seconds.
        if queue.exists() and queue.stat().st_mtime >= began - 1:
            break
        time.sleep(POLL_S)
    if place.ended() is None and not stops():
        _start_players(options, out, url, ports, place, cards)
        names = ", ".join(place.names)
        print(
            f"started {names}; logs in {place.logs}\nlook     ludic status {out} --watch",
            flush=True,
        )
    while (ended := place.ended()) is None and not stops():
        time.sleep(POLL_S)
    if ended is None:
        print("stopping; the trainer saves first", flush=True)
        ended = place.interrupt()
    if stops() > 1:
        print("stopped at once", flush=True)
        return INTERRUPTED
    if ended.kind != "trainer" or ended.code:
        print(f"{ended.name} ended with {ended.code}; the end of {ended.log}:", file=sys.stderr)
        print(last_lines(ended.log), file=sys.stderr, flush=True)
    # A server that ends with 0 has still left the run unfinished.
    return ended.code if ended.kind == "trainer" else FAILED


def _start_trainer(
    options: Options,
    out: Path,
    url: str,
    ports: Sequence[int],
    further: Sequence[str],
    place: Place,
    cards: Layout | None,
) -> None:
    """Start the trainer, with a rank on each of its cards.

    ports: of servers on this machine; elsewhere they join.
    """
    command = [*LUDIC, "train", *options.names, "--out", str(out), "--queue", url]
    if options.servers:
        servers = [f"http://127.0.0.1:{port}" for port in ports]
        command += ["--engine", *(servers or [JOIN])]
    command += further
    env = None
    if cards is not None:
        command += ["--gpus", str(len(cards.ranks))]
        env = cards_env(cards.ranks)
    place.start("trainer", "trainer", command, env, resumed=resumed(command))


def resumed(words: Sequence[str]) -> list[str]:
    """The command line of a trainer that continues its run, from the one that started it."""
    command = without_options(words, TASK_OPTIONS)
    return command if "--resume" in command else [*command, "--resume"]


def _start_players(
    options: Options,
    out: Path,
    url: str,
    ports: Sequence[int],
    place: Place,
    cards: Layout | None,
) -> None:
    """Start the servers, with the model that the trainer left in the folder, and the actors."""
    python = ["--vllm-python", options.vllm_python] if options.vllm_python else []
    dtype = started_recipe(out)[0].defaults.tune.dtype
    for number in range(options.servers):
        arguments = ["serve", str(out / PUBLISHED), "--engine", options.engine, *python]
        # As the trainer: what rounds to nothing in one of them must not count in the other.
        arguments += ["--dtype", SERVED_DTYPES[dtype]]
        env = None
        if cards is not None:
            arguments += cards.servers[number].vllm_flags if options.engine == "vllm" else []
            env = cards_env(cards.servers[number].cards)
        if ports:
            arguments += ["--port", str(ports[number])]
        else:
            arguments += ["--host", HOST, "--port", PORT, "--join", str(out), "--queue", url]
        place.start("server", f"server-{number}", [*LUDIC, *arguments], env)
    for number in range(options.actors):
        name = f"actor-{number}"
        arguments = [
            "launch",
            "--only",
            "actor",
            str(out),
            "--queue",
            url,
            "--name",
            name,
            *options.limits.words(),
        ]
        # Their model is on the servers, and a card that they see would lose memory to them.
        env = cards_env([]) if cards is not None and options.servers else None
        place.start("actor", name, [*LUDIC, *arguments], env)
