"""`ludic launch`: every process of a pipeline on this machine, started and stopped together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.commands.processes import POLL_S, STOP_S, Fleet, Role, free_port, start_redis
from ludic_train.recipes.catalog import RECIPES
from ludic_train.runs.folder import PUBLISHED, QUEUE, is_resumable
from ludic_train.serving.installed import find_vllm

ABOUT = """Start Redis, a server, actors and the trainer of a recipe on this machine, each with a
log in the run's folder, and stop them together: when training has ended, when one of them fails, or
at Ctrl-C, which saves. What follows `--` goes to `ludic train`.

examples:
  ludic launch tic-tac-toe --redis
  ludic launch tic-tac-toe --actors 3 --redis -- --seed 1 --updates 400
  ludic launch tic-tac-toe --servers 0 --queue redis://redis-host:6379 --out runs/mine
  ludic launch tic-tac-toe --redis --engine vllm --python vllm/bin/python -- --model runs/warm"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to start.

    Attributes:
        recipe: As for `ludic train`.
        out: Folder of the run; logs/ in it gets a log per process.
        actors: How many.
        servers: How many servers sample for them; 0: each actor by itself.
        engine: What samples in a server: Ludic's local engine, or vLLM.
        python: The Python that has vLLM; without it, the one that runs this.
        redis: Start a Redis of one's own, on a free port, that keeps its data in the folder.
        queue: URL of the queue otherwise; file://PATH needs no server.
        threads: Threads that each process may compute with.
    """

    recipe: Annotated[str, tyro.conf.Positional]
    out: Path | None = None
    actors: int = 2
    servers: int = 1
    engine: Literal["local", "vllm"] = "local"
    python: str | None = None
    redis: bool = False
    queue: str | None = None
    threads: int = 1


FAILED = 1
LUDIC = (sys.executable, "-m", "ludic_gym")


def main(argv: list[str]) -> int:
    """Run a pipeline to its end; the exit code is the trainer's."""
    own, further = _split(argv)
    options = tyro.cli(Options, args=own, prog="ludic launch", description=ABOUT)
    _check(options, further)
    out = options.out or RECIPES[options.recipe].defaults.out
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(logs, {**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    with _noting_signals() as asked:
        try:
            code = _carried_out(options, out, further, fleet, asked)
        finally:
            fleet.stop()
    if code and is_resumable(out):
        print(f"go on    ludic launch {shlex.join(own)} -- --resume")
    return code


def _check(options: Options, further: Sequence[str]) -> None:
    if options.recipe not in RECIPES:
        raise ConfigError(f"no recipe {options.recipe!r}; there are: {', '.join(RECIPES)}")
    if options.actors < 1:
        raise ConfigError(f"actors={options.actors}; at least one has to play")
    if options.servers < 0:
        raise ConfigError(f"servers={options.servers}; 0 lets each actor sample by itself")
    if options.redis == (options.queue is not None):
        raise ConfigError(f"redis={options.redis} and queue={options.queue}; give one of the two")
    if options.python is not None and options.engine != "vllm":
        raise ConfigError(f"python={options.python!r} is for --engine vllm")
    if options.servers and options.engine == "vllm":
        find_vllm(options.python)
    if options.servers and any(word.partition("=")[0] == "--servers" for word in further):
        raise ConfigError(
            f"servers={options.servers} would be started beside those that --servers names; add "
            "--servers 0"
        )


def _carried_out(
    options: Options, out: Path, further: Sequence[str], fleet: Fleet, asked: Callable[[], bool]
) -> int:
    url = options.queue or start_redis(fleet, out / "redis")
    ports = [free_port() for _ in range(options.servers)]
    began = time.time()
    trainer = fleet.start("trainer", "trainer", _train(options, out, url, ports, further))
    # What an earlier run left in the folder would send actors to its queue.
    while not _written_since(out / QUEUE, began) and fleet.ended() is None and not asked():
        time.sleep(POLL_S)
    if fleet.ended() is None and not asked():
        _start_players(options, out, url, ports, fleet)
        names = ", ".join(role.name for role in fleet.roles)
        print(f"started {names}; logs in {fleet.logs}\nlook     ludic top {out}", flush=True)
    while (ended := fleet.ended()) is None and not asked():
        time.sleep(POLL_S)
    if ended is None:
        print("stopping; the trainer saves first", flush=True)
        _interrupt(trainer)
        ended = trainer
    code = ended.process.wait()
    if ended is not trainer or code:
        print(f"{ended.name} ended with {code}; the end of {ended.log}:", file=sys.stderr)
        print(ended.last_lines(), file=sys.stderr, flush=True)
    return code if ended is trainer else FAILED


def _train(
    options: Options, out: Path, url: str, ports: Sequence[int], further: Sequence[str]
) -> list[str]:
    words = [*LUDIC, "train", options.recipe, "--out", str(out), "--queue", url]
    if ports:
        words += ["--servers", *(f"http://127.0.0.1:{port}" for port in ports)]
    return [*words, *further]


def _start_players(
    options: Options, out: Path, url: str, ports: Sequence[int], fleet: Fleet
) -> None:
    """Start what samples, from what the trainer has left in the folder, and what plays."""
    python = ["--python", options.python] if options.python else []
    for number, port in enumerate(ports):
        words = ["serve", str(out / PUBLISHED), "--engine", options.engine, "--port", str(port)]
        fleet.start("server", f"server-{number}", [*LUDIC, *words, *python])
    for number in range(options.actors):
        name = f"actor-{number}"
        words = ["actor", str(out), "--queue", url, "--name", name]
        fleet.start("actor", name, [*LUDIC, *words])


def _interrupt(trainer: Role) -> None:
    """Let the trainer end its batch and save; one that waits for a batch in vain stops at once."""
    trainer.process.send_signal(signal.SIGINT)
    try:
        trainer.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        trainer.process.send_signal(signal.SIGINT)


def _written_since(path: Path, began: float) -> bool:
    # Some file systems round to whole seconds.
    return path.exists() and path.stat().st_mtime >= began - 1


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words before and after `--`."""
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


@contextmanager
def _noting_signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came."""
    asked: list[int] = []
    usual = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    for signum in usual:
        signal.signal(signum, lambda signum, frame: asked.append(signum))
    try:
        yield lambda: bool(asked)
    finally:
        for signum, handler in usual.items():
            signal.signal(signum, handler)
