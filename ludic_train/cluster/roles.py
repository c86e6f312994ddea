"""The roles of a pipeline: where they run, and those that are processes of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ludic_gym.commands.main import USAGE_ERROR, one_line
from ludic_gym.errors import ConfigError, LudicError
from ludic_train.errors import ModelNotFound, ServerError, UnsupportedModel
from ludic_train.processes import (
    FAILED,
    INTERRUPTED,
    SUPERSEDED,
    free_port,
    last_lines,
    spawn,
    tied_to_parent,
)
from ludic_train.queue_urls import PASSWORD_VARIABLE
from ludic_train.server_tokens import write_private

Kind = Literal["actor", "trainer", "server", "redis"]
# Replaced on the node that runs the command: its address, and a port that is free there.
HOST, PORT = "{host}", "{port}"
# Actors finish their groups and the trainer saves, while what they need still runs.
STOP_ORDER: tuple[Kind, ...] = ("actor", "trainer", "server", "redis")
# In seconds. STOP_S covers the time in which a trainer saves its checkpoint.
POLL_S, START_S, STOP_S, AT_ONCE_S = 0.2, 30.0, 60.0, 10.0


def exit_code_of_role(work: Callable[[], int]) -> int:
    """The exit code of a role: 1 for an error that another start may cure, which it prints.

    Raises the others: ConfigError, ModelNotFound and UnsupportedModel.
    """
    try:
        return work()
    except (ConfigError, ModelNotFound, UnsupportedModel):
        raise
    except LudicError as error:
        print(f"ludic: {one_line(error)}", file=sys.stderr)
        return FAILED


@dataclass(frozen=True, slots=True)
class Policy:
    """The number of restarts of a role, and exit codes after which there is none."""

    restarts: int
    final: frozenset[int]


# Other codes of a trainer are those of a crash. Actors and servers end with another error than that
# of bad input where a trainer began its run anew, and a Redis while the one before has the port.
POLICIES: Mapping[Kind, Policy] = {
    "actor": Policy(100, frozenset({0, USAGE_ERROR})),
    "server": Policy(100, frozenset({0, USAGE_ERROR})),
    "trainer": Policy(20, frozenset({0, USAGE_ERROR, SUPERSEDED, INTERRUPTED})),
    "redis": Policy(100, frozenset()),
}


def resources_of(
    kind: Kind, *, cpus: float, rank_gpus: float, server_gpus: float
) -> Mapping[str, float]:
    """CPUs and GPUs that a role has to itself, by the names that Ray has for them.

    cpus: of a rank, a server or an actor. rank_gpus, server_gpus: of a rank of the trainer, and of
        a server; an actor computes on none.
    """
    if kind == "redis":
        # On the node of the launcher, which may be full.
        return {"CPU": 0.0, "GPU": 0.0}
    gpus = {"trainer": rank_gpus, "server": server_gpus}.get(kind, 0.0)
    return {"CPU": cpus, "GPU": gpus}


@dataclass(frozen=True, slots=True)
class Ended:
    """A role that has ended. code: its exit code, below 0 for the signal that ended it."""

    kind: Kind
    name: str
    code: int
    log: Path


class Place(Protocol):
    """Runs the roles of a pipeline, which end together.

    logs: folder of their logs. env: variables of the roles that are started later.
    """

    logs: Path
    env: Mapping[str, str]

    @property
    def host(self) -> str:
        """Address of a Redis that is started here, as all roles reach it."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Names of the roles that were started."""
        ...

    def start(
        self,
        kind: Kind,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        resumed: Sequence[str] = (),
    ) -> None:
        """Start a role; its output is appended to NAME.log.

        env: variables of its own. resumed: the command where it is started again after a failure
            and a checkpoint; `command` without one.
        """
        ...

    def ended(self) -> Ended | None:
        """A role that has ended and is not started again; None while there is none."""
        ...

    def interrupt(self) -> Ended:
        """Stop the trainer, which saves, and wait; how it ended."""
        ...

    def stop(self) -> None:
        """Terminate all, one kind after the other, and wait; kill those that do not end."""
        ...

    def kill(self) -> None:
        """Kill all at once."""
        ...


@dataclass(frozen=True, slots=True)
class Role:
    """A process and its log."""

    kind: Kind
    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class ProcessGroup(Place):
    """Processes on this machine. env: all variables that they get."""

    logs: Path
    env: Mapping[str, str]
    roles: list[Role] = field(default_factory=list)

    @property
    def host(self) -> str:
        """The loopback address."""
        return "127.0.0.1"

    @property
    def names(self) -> Sequence[str]:
        """Names of the processes that were started."""
        return [role.name for role in self.roles]

    def start(
        self,
        kind: Kind,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        resumed: Sequence[str] = (),
    ) -> None:
        """Start a process that ends with this one; its output is appended to NAME.log."""
        log = self.logs / f"{name}.log"
        variables = {**self.env, **(env or {})}
        self.roles.append(Role(kind, name, spawn(tied_to_parent(command), log, variables), log))

    def ended(self) -> Ended | None:
        """A process that has ended; None while all run that are needed."""
        for role in self.roles:
            code = role.process.poll()
            # An actor ends by itself when its run has ended, and the trainer a little later.
            if code is not None and (role.kind != "actor" or code):
                return Ended(role.kind, role.name, code, role.log)
        return None

    def interrupt(self) -> Ended:
        """Interrupt the trainer, which saves, and a second time if it cannot; how it ended."""
        (trainer,) = (role for role in self.roles if role.kind == "trainer")
        trainer.process.send_signal(signal.SIGINT)
        try:
            trainer.process.wait(STOP_S)
        # The second signal ends it without saving.
        except subprocess.TimeoutExpired:
            trainer.process.send_signal(signal.SIGINT)
        return Ended("trainer", trainer.name, trainer.process.wait(), trainer.log)

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


def start_redis(place: Place, data: Path) -> str:
    """Start a Redis on a free port that keeps its data in the folder; its URL.

    place: starts it, and stops it last; roles that it starts later get the password, by
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
    host = place.host
    port = free_port(host)
    password, settings = secrets.token_urlsafe(24), data / "redis.conf"
    # In a file, because arguments can be read by every user of the machine.
    settings.unlink(missing_ok=True)
    write_private(settings, f"requirepass {password}\n")
    options = ["--bind", host, "--port", str(port), "--dir", str(data.resolve())]
    # Each change is appended: a snapshot now and then would lose the groups after it.
    options += ["--save", "", "--appendonly", "yes"]
    place.start("redis", "redis", [program, str(settings.resolve()), *options])
    place.env = {**place.env, PASSWORD_VARIABLE: password}
    deadline = time.monotonic() + START_S
    while not _responds(host, port):
        if place.ended() is not None or time.monotonic() > deadline:
            raise ServerError(f"redis-server did not start: {last_lines(place.logs / 'redis.log')}")
        time.sleep(POLL_S)
    return f"redis://{host}:{port}/0"


def _responds(host: str, port: int) -> bool:
    """True if a Redis at this address responds to PING within a second, be it by a refusal."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            # A refusal is a response: this connection gives no password.
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
