"""The processes of a pipeline on this machine: started with a log each, stopped in order."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from ludic_train.errors import ServerError

Kind = Literal["actor", "trainer", "server", "redis"]
# Actors may finish their groups, and the trainer saves, while what they need is still there.
STOP_ORDER: tuple[Kind, ...] = ("actor", "trainer", "server", "redis")
POLL_S, START_S, STOP_S, AT_ONCE_S = 0.2, 30.0, 60.0, 10.0
SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class Role:
    """A process and its log."""

    kind: Kind
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_lines(self) -> str:
        """The end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-SHOWN_LINES:])


@dataclass(slots=True)
class Fleet:
    """Processes that run and end together."""

    logs: Path
    env: Mapping[str, str]
    roles: list[Role] = field(default_factory=list)

    def start(self, kind: Kind, name: str, command: Sequence[str]) -> Role:
        """Start one; its output goes to NAME.log, after what is there."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as output:
            process = _started(command, output, self.env)
        self.roles.append(Role(kind, name, process, log))
        return self.roles[-1]

    def ended(self) -> Role | None:
        """One that is not running any more."""
        return next((role for role in self.roles if role.process.poll() is not None), None)

    def stop(self) -> None:
        """Ask all to end, one kind after the other, and wait; make those end that do not."""
        for kind in STOP_ORDER:
            left = [role for role in self.roles if role.kind == kind]
            for limit_s in (STOP_S, AT_ONCE_S):
                left = _asked_to_end(left, limit_s)
            for role in left:
                role.process.kill()
                role.process.wait()


def _asked_to_end(roles: Sequence[Role], limit_s: float) -> list[Role]:
    """Those that still run `limit_s` after they were asked; a trainer saves if asked once."""
    for role in roles:
        if role.process.poll() is None:
            role.process.terminate()
    deadline = time.monotonic() + limit_s
    for role in roles:
        try:
            role.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    return [role for role in roles if role.process.poll() is None]


def start_redis(fleet: Fleet, data: Path) -> str:
    """Start a server on a free port that keeps its data in the folder; its URL.

    Raises ServerError where there is no server to start, or it does not answer.
    """
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise ServerError(
            "neither redis-server nor valkey-server is installed; install one, or take --queue "
            f"file://{data}.sqlite3, which needs none"
        )
    data.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data.resolve())]
    redis = fleet.start("redis", "redis", [program, *options, "--save", "", "--appendonly", "yes"])
    deadline = time.monotonic() + START_S
    while not _answers(port):
        if redis.process.poll() is not None or time.monotonic() > deadline:
            raise ServerError(f"redis-server did not start: {redis.last_lines()}")
        time.sleep(POLL_S)
    return f"redis://127.0.0.1:{port}/0"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
