"""Roles of a pipeline as actors of a Ray cluster: started, waited for, and stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
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
from ludic_train.commands.processes import (
    AT_ONCE_S,
    POLL_S,
    STOP_ORDER,
    STOP_S,
    Ended,
    Kind,
    Place,
)
from ludic_train.commands.ray_node import PAUSE_S, Job, RoleOnNode, node_host
from ludic_train.commands.restarts import POLICIES, resources_of
from ludic_train.commands.train import INTERRUPTED

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
        self, kind: Kind, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        """Have Ray start a role, a trainer as so many ranks; output is appended to NAME.log."""
        own = {**self.env, **(env or {})}
        if kind != "trainer":
            self._start(kind, name, command, own)
            return
        for rank in range(self.ranks):
            self._start(kind, f"{name}-{rank}" if rank else name, command, own, rank)

    def _start(
        self,
        kind: Kind,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        rank: int = 0,
    ) -> None:
        log = self.logs.resolve() / f"{name}.log"
        # Names of Ray actors are unique in a cluster.
        prefix = f"{self.out.resolve()}-{ray.get_runtime_context().get_job_id()}"
        job = Job(
            kind=kind,
            words=tuple(command),
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
        found = resources_of(
            kind, cpus=self.cpus, rank_gpus=self.rank_gpus, server_gpus=self.server_gpus
        )
        options: dict[str, Any] = {"num_cpus": found["CPU"], "num_gpus": found["GPU"]}
        if kind == "redis":
            # Its address must stay: this program's node, and a port that it has chosen.
            node = ray.get_runtime_context().get_node_id()
            return options | {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, False)}
        if kind != "trainer":
            return options | {"scheduling_strategy": "SPREAD"}
        if self.group is None:
            # Ray refuses a bundle with 0 of something.
            bundle = {name: count for name, count in found.items() if count}
            self.group = placement_group([bundle] * self.ranks, strategy="PACK")
        return options | {"scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, rank)}

    def ended(self) -> Ended | None:
        """A role that has ended for good; None while all run, or are being started again."""
        return next((found for role in self.roles if (found := _end_of(role)) is not None), None)

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
