"""`ludic launch`: every process of a pipeline on this machine, started and stopped together."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.errors import ServerError
from ludic_train.recipes import RECIPES
from ludic_train.recipes.remote import QUEUE

ABOUT = """Start Redis, actors and the trainer of a recipe on this machine, each with a log in the
run's folder, and stop them together: when training has ended, when one of them fails, or at Ctrl-C,
which saves. What follows `--` goes to `ludic train`.

examples:
  ludic launch tic-tac-toe --redis
  ludic launch tic-tac-toe --actors 3 --redis -- --seed 1 --updates 400
  ludic launch tic-tac-toe --queue redis://redis-host:6379 --out runs/mine"""
POLL_S, START_S, STOP_S = 0.2, 30.0, 60.0
SHOWN_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to start.

    Attributes:
        recipe: As for `ludic train`.
        out: Folder of the run; logs/ in it gets a log per process.
        actors: How many.
        redis: Start a Redis of one's own, on a free port, that keeps its data in the folder.
        queue: URL of the queue otherwise; file://PATH needs no server.
        threads: Threads that each process may compute with.
    """

    recipe: Annotated[str, tyro.conf.Positional]
    out: Path | None = None
    actors: int = 2
    redis: bool = False
    queue: str | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Role:
    """A process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class Fleet:
    """Processes that are stopped in the opposite order of their start."""

    logs: Path
    env: Mapping[str, str]
    roles: list[Role] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str]) -> Role:
        """Start one; its output goes to NAME.log, after what is there."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as output:
            process = _started(command, output, self.env)
        self.roles.append(Role(name, process, log))
        return self.roles[-1]

    def ended(self) -> Role | None:
        """One that is not running any more."""
        return next((role for role in self.roles if role.process.poll() is not None), None)

    def stop(self) -> None:
        """Ask each to end, actors first and Redis last, and wait; kill what does not."""
        for role in reversed(self.roles):
            if role.process.poll() is None:
                role.process.terminate()
            try:
                role.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                role.process.kill()
                role.process.wait()


def launch(argv: list[str]) -> int:
    """Run a pipeline to its end; the exit code is the trainer's."""
    own, further = _split(argv)
    options = tyro.cli(Options, args=own, prog="ludic launch", description=ABOUT)
    _check(options)
    out = options.out or RECIPES[options.recipe].defaults.out
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(logs, {**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    with _noting_signals() as asked:
        try:
            return _carried_out(options, out, further, fleet, asked)
        finally:
            fleet.stop()


def _check(options: Options) -> None:
    if options.recipe not in RECIPES:
        raise ConfigError(f"no recipe {options.recipe!r}; there are: {', '.join(RECIPES)}")
    if options.actors < 1:
        raise ConfigError(f"actors={options.actors}; at least one has to play")
    if options.redis == (options.queue is not None):
        raise ConfigError(f"redis={options.redis} and queue={options.queue}; give one of the two")


def _carried_out(
    options: Options, out: Path, further: Sequence[str], fleet: Fleet, asked: Callable[[], bool]
) -> int:
    url = options.queue or _start_redis(fleet, out)
    ludic = [sys.executable, "-m", "ludic_gym"]
    words = [options.recipe, "--out", str(out), "--queue", url, *further]
    began = time.time()
    trainer = fleet.start("trainer", [*ludic, "train", *words])
    # What an earlier run left in the folder would send actors to its queue.
    while not _written_since(out / QUEUE, began) and fleet.ended() is None and not asked():
        time.sleep(POLL_S)
    for number in range(options.actors):
        name = f"actor-{number}"
        fleet.start(name, [*ludic, "actor", str(out), "--queue", url, "--name", name])
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
        print(_tail(ended.log), file=sys.stderr)
    return code if ended is trainer else code or 1


def _interrupt(trainer: Role) -> None:
    """Let the trainer end its batch and save; one that waits for a batch in vain stops at once."""
    trainer.process.send_signal(signal.SIGINT)
    try:
        trainer.process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        trainer.process.send_signal(signal.SIGINT)


def _start_redis(fleet: Fleet, out: Path) -> str:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise ServerError(
            "neither redis-server nor valkey-server is installed; install one, or take --queue "
            f"file://{out}/queue.sqlite3, which needs none"
        )
    data = (out / "redis").resolve()
    data.mkdir(exist_ok=True)
    port = _free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), "--save", ""]
    redis = fleet.start("redis", [program, *options, "--appendonly", "yes"])
    deadline = time.monotonic() + START_S
    while not _answers(port):
        if redis.process.poll() is not None or time.monotonic() > deadline:
            raise ServerError(f"redis-server did not start: {_tail(redis.log)}")
        time.sleep(POLL_S)
    return f"redis://127.0.0.1:{port}/0"


def _written_since(path: Path, began: float) -> bool:
    # Some file systems round to whole seconds.
    return path.exists() and path.stat().st_mtime >= began - 1


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words before and after `--`."""
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


def _started(
    command: Sequence[str], output: IO[bytes], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches this program alone, which then stops all in order.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-SHOWN_LINES:])


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
