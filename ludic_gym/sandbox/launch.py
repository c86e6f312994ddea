"""Back ends: command lines that start an empty sandbox with a worker in it."""

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

# Not -I, which would ignore PYTHONHASHSEED. Equal programs must see equal orders of sets of
# strings. The environment holds only the names below, so that ignoring it is not needed.
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

    descriptors: kept open in the command, closed here. weighed: True if the program is a descendant
    of this process, so that its memory can be summed. end: cleanup after the command has ended.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    descriptors: tuple[int, ...] = ()
    weighed: bool = True
    end: Callable[[], None] = lambda: None


class Backend(Protocol):
    """One way to make a sandbox from a process.

    Workers start before their programs are known: `launch` may only use the limits in `fixed`.
    """

    @property
    def name(self) -> str:
        """Its name for `open_sandbox`."""

    @property
    def guarantees(self) -> Guarantees:
        """Its guarantees."""

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """The limits that a worker has from its start; its program must have equal ones."""

    def launch(self, limits: Limits) -> Launch:
        """A command that starts a worker. Raises NoSandbox if this machine cannot run it."""

    def failed(self, exit_code: int) -> bool:
        """True for an exit code with which only the sandbox itself can end, not its program."""


def spawned(launch: Launch) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own. Raises SandboxError if it cannot start."""
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
    """True for Popen's negative codes.

    A program in a process namespace cannot send signals to the process outside that keeps it.
    """
    return exit_code < 0


def shell_code(exit_code: int) -> int:
    """Popen's -9 as a shell's 137."""
    return 128 - exit_code if exit_code < 0 else exit_code


CPU_CODE = 128 + signal.SIGXCPU


@cache
def worker_source() -> str:
    """Source text of the worker, without the call of `main`."""
    return Path(__file__).with_name("worker.py").read_text(encoding="utf-8")


def worker_command(python: str, uid: int = 0) -> tuple[str, ...]:
    """Command of a worker that changes to user `uid`, or keeps its user for 0."""
    return (python, *PYTHON_FLAGS, "-c", f"{worker_source()}\nmain({uid})")


@cache
def interpreter() -> tuple[str, str]:
    """Path of the Python below any virtual environment, and the folder of its files."""
    return os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)
