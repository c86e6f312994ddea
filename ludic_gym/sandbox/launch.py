"""Back ends: command lines that start an empty sandbox with a worker in it.

A back end differs from another only in its command. This is one of your own:

    def launch(limits):
        command = ("firejail", "--quiet", "--net=none", *worker_command("python3"))
        return Launch(command=command, environment=ENVIRONMENT)

    sandbox = LocalSandbox(Backend(name="firejail", launch=launch))

`measured` in `probes` tests its guarantees.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.memory import MemoryGroup
from ludic_gym.sandbox.types import ALL_GUARANTEES, Guarantees, Limits

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
# Its files hold solutions of tasks.
PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that starts a worker with its three pipes.

    command, environment, folder: of the process; it inherits no variable.
    descriptors: kept open in the command, closed here.
    descends: True if the program is a descendant of this process, which then limits its memory.
    pid_file: if it is not, the file in which the command writes the id of the program's first
        process, or None: its idle time is then not limited.
    end: cleanup after the command has ended.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    descriptors: tuple[int, ...] = ()
    descends: bool = True
    pid_file: Path | None = None
    end: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way to make a sandbox from a process.

    name: for `open_sandbox`.
    launch: makes the command that starts a worker. Raises NoSandbox if this machine cannot run it.
    guarantees: of the sandbox.
    fixed: the limits that a worker has from its start. Workers start before their programs are
        known: `launch` may only use these limits, and the program must have equal ones.
    failed: True for an exit code with which only the sandbox itself can end, not its program.
    """

    name: str
    launch: Callable[[Limits], Launch]
    guarantees: Guarantees = ALL_GUARANTEES
    fixed: Callable[[Limits], tuple[int, ...]] = lambda limits: ()
    # Popen's negative code: a program in a process namespace cannot send signals to the process
    # outside that keeps it, so a signal ended the sandbox.
    failed: Callable[[int], bool] = lambda exit_code: exit_code < 0


def start_process(launch: Launch, group: MemoryGroup | None = None) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own. Raises SandboxError if it cannot start.

    group: the process and all its descendants belong to it.
    Closes the launch's descriptors here in any case, and calls its `end` if there is no process.
    """
    try:
        return subprocess.Popen(
            group.around(launch.command) if group else launch.command,
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


@cache
def worker_source() -> str:
    """Source text of the worker, without the call of `main`."""
    return Path(__file__).with_name("worker.py").read_text(encoding="utf-8")


def worker_command(python: str, uid: int = 0) -> tuple[str, ...]:
    """Command of a worker that changes to user `uid`, or keeps its user for 0.

    python: path of an interpreter inside the sandbox, 3.11 or newer.
    """
    return (python, *PYTHON_FLAGS, "-c", f"{worker_source()}\nmain({uid})")


@cache
def interpreter() -> tuple[str, str]:
    """Path of the Python below any virtual environment, and the folder of its files."""
    return os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)


def hidden_folders(prefix: str) -> tuple[str, ...]:
    """This package's folder if programs could read it, because it is installed below one of theirs.

    prefix: the interpreter's folder.
    """
    return (str(PACKAGE),) if any(map(PACKAGE.is_relative_to, (prefix, "/usr"))) else ()


def launch_plainly(limits: Limits) -> Launch:
    """Launch of a worker without any protection, in a folder of its own, removed at its end."""
    folder = tempfile.mkdtemp(prefix="ludic-")
    return Launch(
        command=worker_command(interpreter()[0]),
        environment={**ENVIRONMENT, "HOME": folder},
        folder=folder,
        end=partial(shutil.rmtree, folder, ignore_errors=True),
    )


PLAIN = Backend(
    name="process",
    launch=launch_plainly,
    guarantees=Guarantees(
        network=False, filesystem=False, processes=False, memory=False, cpu=False, disk=False
    ),
    # Any exit code may be the program's own.
    failed=lambda exit_code: False,
)
"""Back end with resource limits only, for trusted programs."""
