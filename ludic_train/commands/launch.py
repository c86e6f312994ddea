"""`ludic launch`: every process of a pipeline on this machine, started and stopped together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from ludic_gym.commands.arguments import readable_env_errors
from ludic_gym.errors import ConfigError
from ludic_train.commands.processes import POLL_S, STOP_S, ProcessGroup, Role, start_redis
from ludic_train.commands.train import INTERRUPTED, parsed
from ludic_train.pipeline.queues.open_queue import refuse_password
from ludic_train.runs.folder import PUBLISHED, QUEUE, is_resumable
from ludic_train.serving.installed import find_vllm
from ludic_train.serving.process import last_lines
from ludic_train.serving.startup import free_port, stop_handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Start Redis, servers, actors and the trainer of a run on this machine.

    Each has a log in the run's folder. All are stopped together: when training has ended, when one
    of them fails, or at Ctrl-C, which saves; a second Ctrl-C ends them at once. Arguments after
    `--` go to `ludic train`.

    For example:
      ludic launch tic-tac-toe --redis
      ludic launch tic-tac-toe --actors 3 --redis -- --seed 1 --updates 400
      ludic launch tic-tac-toe --servers 0 --queue redis://redis-host:6379 --out runs/mine
      ludic launch gsm8k --redis --engine vllm --vllm-python vllm/bin/python -- --model runs/warm

    Attributes:
        names: Environments or a recipe, as for `ludic train`.
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
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    out: Path | None = None
    actors: int = 2
    servers: int = 1
    engine: Literal["local", "vllm"] = "local"
    vllm_python: str | None = None
    redis: bool = False
    queue: str | None = None
    threads: int = 1


# Exit code where another process than the trainer ended first.
FAILED = 1
# The module and not the script: the script may belong to another Python on PATH.
LUDIC = (sys.executable, "-m", "ludic_gym")


def main(argv: list[str]) -> int:
    """Run a pipeline to its end; the exit code is the trainer's."""
    own, further = _split(argv)
    options = tyro.cli(Options, args=own, prog="ludic launch")
    _check(options, further)
    # Its errors should come before anything is started.
    with readable_env_errors():
        out = options.out or parsed(options.names, further).settings.out
    logs = out / "logs"
    # A resumed run appends to the logs of the earlier one.
    logs.mkdir(parents=True, exist_ok=True)
    group = ProcessGroup(logs, {**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    signals: list[int] = []

    def note(signum: int, frame: object) -> None:
        signals.append(signum)
        if len(signals) > 1:
            # All that waits for a process then ends by itself.
            group.kill()

    with stop_handler(note):
        try:
            code = _run(options, out, further, group, lambda: bool(signals))
        finally:
            group.stop()
    if code and is_resumable(out):
        print(f"resume   ludic launch {shlex.join(own)} -- --resume")
    return code


def _check(options: Options, further: Sequence[str]) -> None:
    """Raises ConfigError for options that contradict each other, before anything is started."""
    refuse_password(options.queue)
    if options.actors < 1:
        raise ConfigError(f"actors={options.actors}; at least one must play")
    if options.servers < 0:
        raise ConfigError(f"servers={options.servers}; 0 lets each actor sample by itself")
    if options.redis == (options.queue is not None):
        raise ConfigError(f"redis={options.redis} and queue={options.queue}; give one of the two")
    if options.vllm_python is not None and options.engine != "vllm":
        raise ConfigError(f"vllm_python={options.vllm_python!r} is for --engine vllm")
    if options.servers and options.engine == "vllm":
        # Its errors should come before the trainer has been started.
        find_vllm(options.vllm_python)
    if options.servers and any(word.partition("=")[0] == "--engine" for word in further):
        raise ConfigError(
            f"servers={options.servers} would be started beside those that --engine names; add "
            "--servers 0"
        )


def _run(
    options: Options,
    out: Path,
    further: Sequence[str],
    group: ProcessGroup,
    is_stopped: Callable[[], bool],
) -> int:
    """Start all processes and wait for the first that ends; the exit code."""
    url = options.queue or start_redis(group, out / "redis")
    # The trainer writes them into the folder for the actors, so they are chosen before the servers
    # start. A server whose port was taken meanwhile ends, and all others with it.
    ports = [free_port() for _ in range(options.servers)]
    began = time.time()
    trainer = group.start("trainer", "trainer", _train(options, out, url, ports, further))
    # The address that an earlier run left in the folder would send actors to its queue.
    while not _written_since(out / QUEUE, began) and group.ended() is None and not is_stopped():
        time.sleep(POLL_S)
    if group.ended() is None and not is_stopped():
        _start_players(options, out, url, ports, group)
        names = ", ".join(role.name for role in group.roles)
        print(f"started {names}; logs in {group.logs}\nlook     ludic top {out}", flush=True)
    while (ended := group.ended()) is None and not is_stopped():
        time.sleep(POLL_S)
    if ended is None:
        print("stopping; the trainer saves first", flush=True)
        _interrupt(trainer)
        ended = trainer
    code = ended.process.wait()
    if is_stopped() and code == -signal.SIGKILL:
        print("stopped at once, without a checkpoint", flush=True)
        return INTERRUPTED
    if ended is not trainer or code:
        print(f"{ended.name} ended with {code}; the end of {ended.log}:", file=sys.stderr)
        print(last_lines(ended.log), file=sys.stderr, flush=True)
    return code if ended is trainer else FAILED


def _train(
    options: Options, out: Path, url: str, ports: Sequence[int], further: Sequence[str]
) -> list[str]:
    """The command line of the trainer."""
    arguments = [*LUDIC, "train", *options.names, "--out", str(out), "--queue", url]
    if ports:
        arguments += ["--engine", *(f"http://127.0.0.1:{port}" for port in ports)]
    return [*arguments, *further]


def _start_players(
    options: Options, out: Path, url: str, ports: Sequence[int], group: ProcessGroup
) -> None:
    """Start the servers, with the model that the trainer left in the folder, and the actors."""
    python = ["--vllm-python", options.vllm_python] if options.vllm_python else []
    for number, port in enumerate(ports):
        arguments = ["serve", str(out / PUBLISHED), "--engine", options.engine, "--port", str(port)]
        group.start("server", f"server-{number}", [*LUDIC, *arguments, *python])
    for number in range(options.actors):
        name = f"actor-{number}"
        arguments = ["actor", str(out), "--queue", url, "--name", name]
        group.start("actor", name, [*LUDIC, *arguments])


def _interrupt(trainer: Role) -> None:
    """Interrupt the trainer, which ends its batch and saves; a second time if it cannot."""
    trainer.process.send_signal(signal.SIGINT)
    try:
        trainer.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        trainer.process.send_signal(signal.SIGINT)


def _written_since(path: Path, began: float) -> bool:
    """True if the file was written after `began`, in Unix time."""
    # Some file systems round to whole seconds.
    return path.exists() and path.stat().st_mtime >= began - 1


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments before and after `--`."""
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])
