"""A role on the node of a Ray cluster that runs it.

Each Ray actor runs one command as a child process, in one call of `RoleOnNode.run`. Where the
command fails, the actor's worker ends itself; where worker or node is lost, Ray notices. Either way
Ray starts the actor again, on any node with room, and repeats the call.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import ray

from ludic_train.cluster.servers.process import spawn
from ludic_train.cluster.servers.startup import free_port, guarded
from ludic_train.commands.processes import Kind
from ludic_train.commands.restarts import HOST, POLICIES, PORT, resumed
from ludic_train.commands.train import INTERRUPTED
from ludic_train.runs.folder import is_resumable

# Seconds between a failure and the next start, and between two attempts to reach rank 0.
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command and its surroundings, the same on each node.

    words: program and arguments, with HOST and PORT in place of those of the node.
    env: variables beside those of the node. cwd: folder that the command runs in.
    out: folder of the run; a trainer that is started again resumes it.
    rank, ranks: number of this trainer among the ranks. rank_0: name of the Ray actor of rank 0.
    """

    kind: Kind
    words: Sequence[str]
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
        words = _on_this_node(_restarted(job) if _is_restart() else job.words)
        with job.log.open("a", encoding="utf-8") as log:
            log.write(f"[{time.strftime('%F %T')}] starting on {node_host()}\n")
        # Linux signals it when this worker ends, by whatever: the threads of an actor live as long.
        process = spawn(guarded(words), job.log, env)
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


def _restarted(job: Job) -> Sequence[str]:
    """The command of a role that is not started for the first time."""
    is_further = job.kind == "trainer" and is_resumable(job.out)
    return resumed(job.words) if is_further else job.words


def _on_this_node(words: Sequence[str]) -> list[str]:
    """The words with HOST and PORT replaced."""
    values = {HOST: node_host(), PORT: str(free_port("0.0.0.0"))}
    return [values.get(word, word) for word in words]


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


def _is_restart() -> bool:
    """True in an actor that Ray has started again."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)
