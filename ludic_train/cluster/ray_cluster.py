"""Roles of a pipeline as actors of a Ray cluster: started, waited for, and stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from ludic_gym.errors import ConfigError
from ludic_train.cluster.roles import (
    AT_ONCE_S,
    HOST,
    POLICIES,
    POLL_S,
    PORT,
    STOP_ORDER,
    STOP_S,
    Ended,
    Kind,
    Place,
    resources_of,
)
from ludic_train.processes import INTERRUPTED, free_port, spawn, tied_to_parent
from ludic_train.runs.folder import is_resumable

# Seconds between a failure and the next start, and between two attempts to reach rank 0.
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command and its surroundings, the same on each node.

    words: program and arguments, with HOST and PORT in place of those of the node.
    env: variables beside those of the node. cwd: folder that the command runs in.
    out: folder of the run. resumed: the command of a start after a checkpoint; () for none.
    rank, ranks: number of this trainer among the ranks. rank_0: name of the Ray actor of rank 0.
    """

    kind: Kind
    words: Sequence[str]
    resumed: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(repr=False)
    cwd: Path
    out: Path
    rank: int = 0
    ranks: int = 1
    rank_0: str = ""


class RoleOnNode:
    """The Ray actor of a role. Its methods are called from several threads."""

    def __init__(self, job: Job) -> None:
        self._job, self._stopped = job, threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        # Of this start: the ranks of the trainer meet there.
        self._meeting = (node_host(), free_port("0.0.0.0"))
        # Workers start in a folder of Ray's, where relative paths of the command would fail.
        os.chdir(job.cwd)

    def meeting(self) -> tuple[str, int]:
        """Host and port at which the ranks of this start of rank 0 meet."""
        return self._meeting

    def run(self) -> int:
        """Run the command; its exit code, if that is final. Otherwise the worker process ends."""
        job = self._job
        if self._stopped.is_set():
            return INTERRUPTED
        env = {**os.environ, **job.env, **self._rank_env()}
        is_restart = ray.get_runtime_context().was_current_actor_reconstructed
        is_resumed = job.resumed and is_restart and is_resumable(job.out)
        node = {HOST: node_host(), PORT: str(free_port("0.0.0.0"))}
        words = [node.get(word, word) for word in (job.resumed if is_resumed else job.words)]
        with job.log.open("a", encoding="utf-8") as log:
            log.write(f"[{time.strftime('%F %T')}] starting on {node_host()}\n")
        # Linux signals it when this worker ends, by whatever: the threads of an actor live as long.
        process = spawn(tied_to_parent(words), job.log, env)
        self._process = process
        if self._stopped.is_set():
            # By a call that came before there was a process.
            process.terminate()
        code = process.wait()
        if code in POLICIES[job.kind].final or self._stopped.is_set():
            return code
        time.sleep(PAUSE_S)
        # No exception: Ray restarts the actor of a worker that died.
        os._exit(1)

    def send(self, signum: int) -> None:
        """Signal the command, and do not have it started again."""
        # First: the command may end between the two.
        self._stopped.set()
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)

    def _rank_env(self) -> dict[str, str]:
        """The variables by which torch.distributed finds the other ranks; none for a single one."""
        job = self._job
        if job.ranks == 1:
            return {}
        host, port = self._meeting if job.rank == 0 else _meeting_of(job.rank_0)
        return {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(job.ranks),
            "RANK": str(job.rank),
            # Ray shows each actor its own cards alone.
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }


def _meeting_of(rank_0: str) -> tuple[str, int]:
    """Where the ranks meet, from the Ray actor of rank 0, once it runs."""
    while True:
        try:
            host, port = ray.get(ray.get_actor(rank_0).meeting.remote())
        except (ValueError, ray.exceptions.RayActorError):
            # It is not there yet, or is being started again.
            time.sleep(PAUSE_S)
            continue
        return str(host), int(port)


def node_host() -> str:
    """Address of this node, as the others reach it."""
    return str(ray.util.get_node_ip_address())


# Limit of a call to a role that runs.
REACH_S = 5.0
# Time in which the nodes of a cluster that starts may join it.
JOIN_S = 30.0


@dataclass(frozen=True, slots=True)
class RayRole:
    """A role in the cluster. handle: its Ray actor. running: reference to the result of `run`."""

    kind: Kind
    name: str
    log: Path
    handle: Any
    running: Any


@dataclass(slots=True, kw_only=True)
class RayRoles(Place):
    """Roles in a Ray cluster, which end with the program that started them.

    out: folder of the run, at the same path on all nodes.
    cpus: that Ray reserves for a rank, a server or an actor. rank_gpus, server_gpus: likewise.
    ranks: number of trainers. group: their placement group, made by the first of them.
    """

    logs: Path
    env: Mapping[str, str]
    out: Path
    cpus: float = 1.0
    ranks: int = 1
    rank_gpus: float = 0.0
    server_gpus: float = 0.0
    roles: list[RayRole] = field(default_factory=list)
    group: Any = None

    @property
    def host(self) -> str:
        """Address of the node of this program."""
        return node_host()

    @property
    def names(self) -> Sequence[str]:
        """Names of the roles that were started."""
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
        """Have Ray start a role, a trainer as so many ranks; output is appended to NAME.log."""
        variables = {**self.env, **(env or {})}
        if kind != "trainer":
            self._start(kind, name, command, variables)
            return
        for rank in range(self.ranks):
            self._start(kind, f"{name}-{rank}" if rank else name, command, variables, rank, resumed)

    def _start(
        self,
        kind: Kind,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        rank: int = 0,
        resumed: Sequence[str] = (),
    ) -> None:
        log = self.logs.resolve() / f"{name}.log"
        # Names of Ray actors are unique in a cluster.
        prefix = f"{self.out.resolve()}-{ray.get_runtime_context().get_job_id()}"
        job = Job(
            kind=kind,
            words=tuple(command),
            resumed=tuple(resumed),
            log=log,
            env=env,
            cwd=Path.cwd(),
            out=self.out.resolve(),
            rank=rank,
            ranks=self.ranks if kind == "trainer" else 1,
            rank_0=f"{prefix}-trainer",
        )
        handle = (
            ray.remote(RoleOnNode)
            .options(
                name=f"{prefix}-{name}",
                max_restarts=POLICIES[kind].restarts,
                # Each restart of the actor calls `run` again.
                max_task_retries=-1,
                # For `run`, and for what is called meanwhile.
                max_concurrency=4,
                **self._resources(kind, rank),
            )
            .remote(job)
        )
        self.roles.append(RayRole(kind, name, log, handle, handle.run.remote()))

    def _resources(self, kind: Kind, rank: int) -> dict[str, Any]:
        """Options of the role's Ray actor: what it reserves, and where it may run."""
        reserved = resources_of(
            kind, cpus=self.cpus, rank_gpus=self.rank_gpus, server_gpus=self.server_gpus
        )
        options: dict[str, Any] = {"num_cpus": reserved["CPU"], "num_gpus": reserved["GPU"]}
        if kind == "redis":
            # Its address must stay: this program's node, and a port that it has chosen.
            node = ray.get_runtime_context().get_node_id()
            return options | {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, False)}
        if kind != "trainer":
            return options | {"scheduling_strategy": "SPREAD"}
        if self.group is None:
            # Ray refuses a bundle with 0 of something.
            bundle = {name: count for name, count in reserved.items() if count}
            self.group = placement_group([bundle] * self.ranks, strategy="PACK")
        return options | {"scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, rank)}

    def ended(self) -> Ended | None:
        """A role that has ended for good; None while all run, or are being started again."""
        return next((end for role in self.roles if (end := _end_of(role)) is not None), None)

    def interrupt(self) -> Ended:
        """Stop the ranks of the trainer, which save; how they ended."""
        ranks = [role for role in self.roles if role.kind == "trainer"]
        self._stop(ranks)
        return _end_of(ranks[0]) or Ended(ranks[0].kind, ranks[0].name, INTERRUPTED, ranks[0].log)

    def stop(self) -> None:
        """Terminate all, one kind after the other, and wait; kill those that do not end."""
        for kind in STOP_ORDER:
            self._stop([role for role in self.roles if role.kind == kind])
        self.kill()

    def _stop(self, roles: Sequence[RayRole]) -> None:
        """Terminate them and wait, then a second time."""
        left = list(roles)
        for limit_s in (STOP_S, AT_ONCE_S):
            left = [role for role in left if not _is_done(role.running)]
            sent = {role.handle.send.remote(signal.SIGTERM): role for role in left}
            if not sent:
                return
            # One that waits for a place has no process.
            reached, _ = ray.wait(list(sent), num_returns=len(sent), timeout=REACH_S)
            running = [sent[each].running for each in reached]
            deadline = time.monotonic() + limit_s
            while running and time.monotonic() < deadline:
                _, running = ray.wait(running, num_returns=len(running), timeout=POLL_S)
            left = [role for role in left if role.running in running]

    def kill(self) -> None:
        """Kill all at once."""
        sent = [role.handle.send.remote(signal.SIGKILL) for role in self.roles]
        # A role that waits for a place has no process to kill.
        if sent:
            ray.wait(sent, num_returns=len(sent), timeout=PAUSE_S)
        for role in self.roles:
            ray.kill(role.handle, no_restart=True)


def connect(on: str, cpus: float, gpus: float) -> None:
    """Join the cluster at an address, or with "ray" the one of this machine, else a new local one.

    cpus, gpus: that all roles need together.
    Raises ConfigError for a cluster that cannot be reached or has less.
    """
    if on != "ray":
        _refuse_silent(on)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    try:
        ray.init("auto" if on == "ray" else on, **quiet)
    except ConnectionError as error:
        if on != "ray":
            raise ConfigError(f"no Ray cluster responds at {on}: {error}") from error
        ray.init(num_cpus=max(os.cpu_count() or 1, ceil(cpus)), include_dashboard=False, **quiet)
    there = _resources_in_time({"CPU": cpus, "GPU": gpus})
    for name, needed in (("CPU", cpus), ("GPU", gpus)):
        if needed > there.get(name, 0):
            raise ConfigError(
                f"the roles need {needed:g} {name}s, and the Ray cluster has "
                f"{there.get(name, 0):g}: start fewer, add nodes, or lower "
                f"{'--role-cpus' if name == 'CPU' else '--rank-gpus and --server-gpus'}"
            )


def _refuse_silent(address: str) -> None:
    """Raise ConfigError for an address that takes no connection: Ray would try for minutes."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        with socket.create_connection((parts.hostname, parts.port or 0), timeout=REACH_S):
            return
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--on {address}: nothing responds there ({error}); it is ray, HOST:PORT of "
            "`ray start --head`, or ray://HOST:PORT"
        ) from error


def _resources_in_time(needed: Mapping[str, float]) -> Mapping[str, float]:
    """The resources of the cluster, once they suffice or JOIN_S seconds have passed."""
    deadline = time.monotonic() + JOIN_S
    while True:
        there: Mapping[str, float] = ray.cluster_resources()
        is_enough = all(there.get(name, 0) >= count for name, count in needed.items())
        if is_enough or time.monotonic() > deadline:
            return there
        time.sleep(POLL_S)


def disconnect() -> None:
    """Leave the cluster, and end it if it was started by `connect`."""
    ray.shutdown()


def _end_of(role: RayRole) -> Ended | None:
    """The final end of a role; None if it still runs, and for ranks and actors that finished."""
    if not _is_done(role.running):
        return None
    try:
        code = int(ray.get(role.running))
    except ray.exceptions.RayActorError as error:
        with role.log.open("a", encoding="utf-8") as log:
            log.write(f"Ray does not start it again: {error}\n")
        code = 1
    # Rank 0 reports the run after the others have ended, actors that end with it included.
    if role.name != "trainer" and role.kind in ("trainer", "actor") and code == 0:
        return None
    return Ended(role.kind, role.name, code, role.log)


def _is_done(running: Any) -> bool:  # noqa: ANN401 - a reference of Ray
    return bool(ray.wait([running], timeout=0)[0])
