"""How a back end starts an empty sandbox: a command line and what belongs to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.types import Guarantees, Limits

# Not -I, which would ignore PYTHONHASHSEED; the environment is ours from the first name to the
# last. The order of sets of strings must not change from run to run.
PYTHON_FLAGS = ("-s", "-S", "-P")
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that starts a worker with its three pipes.

    descriptors: kept open in it, closed here. weighed: whether the program runs below this
    process, so that its memory can be summed. end: called once it has gone, to remove what the
    command left behind.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    descriptors: tuple[int, ...] = ()
    weighed: bool = True
    end: Callable[[], None] = lambda: None


class Backend(Protocol):
    """One way to make a sandbox from a process.

    Workers are started ahead of their programs, so that `launch` may depend on no limits but
    those that `fixed` shows.
    """

    @property
    def name(self) -> str:
        """What `open_sandbox` calls it."""

    @property
    def guarantees(self) -> Guarantees:
        """What it promises."""

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """The limits that hold from the start; a worker serves programs with equal ones."""

    def launch(self, limits: Limits) -> Launch:
        """How to start a worker. Raises NoSandbox if this machine cannot."""

    def failed(self, exit_code: int) -> bool:
        """Whether the sandbox itself ended like this, whatever the program did."""


def spawned(launch: Launch) -> subprocess.Popen[bytes]:
    """The process, leader of a session of its own. Raises SandboxError if it cannot start."""
    try:
        return subprocess.Popen(
            launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(launch.environment),
            cwd=launch.folder,
            pass_fds=launch.descriptors,
            start_new_session=True,
        )
    except OSError as error:
        launch.end()
        raise SandboxError(f"cannot start {launch.command[0]}: {error}") from error
    finally:
        for descriptor in launch.descriptors:
            os.close(descriptor)


def killed_by_a_signal(exit_code: int) -> bool:
    """Whether Popen says so; programs in a process namespace cannot do it to their keeper."""
    return exit_code < 0


def shell_code(exit_code: int) -> int:
    """Popen's -9 as a shell's 137."""
    return 128 - exit_code if exit_code < 0 else exit_code


CPU_CODE = 128 + signal.SIGXCPU


@cache
def worker_source() -> str:
    """The worker's text, without the call."""
    return Path(__file__).with_name("worker.py").read_text(encoding="utf-8")


def worker_command(python: str, uid: int = 0) -> tuple[str, ...]:
    """Python as a worker that becomes that user, or stays who it is."""
    return (python, *PYTHON_FLAGS, "-c", f"{worker_source()}\nmain({uid})")


@cache
def interpreter() -> tuple[str, str]:
    """The Python below any virtual environment, and the folder that it needs."""
    return os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)
