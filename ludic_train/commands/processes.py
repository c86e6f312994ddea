"""The processes of a pipeline on this machine: started with a log each, stopped in order."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ludic_train.errors import ServerError
from ludic_train.pipeline.queues.open_queue import PASSWORD_VARIABLE
from ludic_train.server_tokens import write_private
from ludic_train.serving.process import last_lines, spawn
from ludic_train.serving.startup import free_port, guarded

Kind = Literal["actor", "trainer", "server", "redis"]
# Actors finish their groups and the trainer saves, while what they need still runs.
STOP_ORDER: tuple[Kind, ...] = ("actor", "trainer", "server", "redis")
# In seconds. STOP_S covers the time in which a trainer saves its checkpoint.
POLL_S, START_S, STOP_S, AT_ONCE_S = 0.2, 30.0, 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Role:
    """A process and its log."""

    kind: Kind
    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class ProcessGroup:
    """Processes that run and end together. env: of all of them."""

    logs: Path
    env: Mapping[str, str]
    roles: list[Role] = field(default_factory=list)

    def start(self, kind: Kind, name: str, command: Sequence[str]) -> Role:
        """Start a process that ends with this one; its output is appended to NAME.log."""
        log = self.logs / f"{name}.log"
        self.roles.append(Role(kind, name, spawn(guarded(command), log, self.env), log))
        return self.roles[-1]

    def ended(self) -> Role | None:
        """A process that has ended; None while all run."""
        return next((role for role in self.roles if role.process.poll() is not None), None)

    def stop(self) -> None:
        """Terminate all, one kind after the other, and wait; kill those that do not end."""
        for kind in STOP_ORDER:
            left = [role for role in self.roles if role.kind == kind]
            # A trainer saves after the first signal, and ends at once after a second one.
            for limit_s in (STOP_S, AT_ONCE_S):
                left = _left_after_terminate(left, limit_s)
            for role in left:
                # Without a checkpoint; the one before stays valid.
                role.process.kill()
                role.process.wait()

    def kill(self) -> None:
        """Kill all at once, with what each has started in its session."""
        for role in self.roles:
            if role.process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(role.process.pid, signal.SIGKILL)


def _left_after_terminate(roles: Sequence[Role], limit_s: float) -> list[Role]:
    """Terminate them and wait `limit_s` seconds for all together; those that still run."""
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


def start_redis(group: ProcessGroup, data: Path) -> str:
    """Start a Redis on a free port that keeps its data in the folder; its URL.

    group: gets the process, and stops it last; processes that it starts later get the password, by
        PASSWORD_VARIABLE.
    data: made if it does not exist.
    Raises ServerError where none is installed, or it does not respond within START_S seconds.
    """
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise ServerError(
            "neither redis-server nor valkey-server is installed; install one, or take --queue "
            f"file://{data}.sqlite3, which needs none"
        )
    data.mkdir(parents=True, exist_ok=True)
    port = free_port()
    password, settings = secrets.token_urlsafe(24), data / "redis.conf"
    settings.unlink(missing_ok=True)
    write_private(settings, f"requirepass {password}\n")
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data.resolve())]
    options += ["--save", "", "--appendonly", "yes"]
    redis = group.start("redis", "redis", [program, str(settings.resolve()), *options])
    group.env = {**group.env, PASSWORD_VARIABLE: password}
    deadline = time.monotonic() + START_S
    while not _responds(port):
        if redis.process.poll() is not None or time.monotonic() > deadline:
            raise ServerError(f"redis-server did not start: {last_lines(redis.log)}")
        time.sleep(POLL_S)
    return f"redis://127.0.0.1:{port}/0"


def _responds(port: int) -> bool:
    """True if a Redis on this port responds to PING within a second, be it by a refusal."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
