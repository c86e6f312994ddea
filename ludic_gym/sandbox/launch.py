"""Back ends: command lines that start a worker, confined by Linux's namespaces or plain.

Run by root, each program has a user id of its own. Run by a user, it is a user of a new user
namespace. A back end of your own differs in its command only:

    def launch(limits):
        command = ("firejail", "--quiet", "--net=none", *worker_command("python3"))
        return Launch(command=command, environment=ENVIRONMENT)

    sandbox = LocalSandbox(Backend(name="firejail", launch=launch))
"""

import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.sandbox.memory import MemoryGroup
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import ALL_GUARANTEES, MEBIBYTE, Guarantees, Limits

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
SHARED_MEMORY_BYTES = 16 * MEBIBYTE
PAGE_BYTES = 4096
# Before this, RLIMIT_NPROC counted all processes that the user has anywhere.
COUNTS_PER_NAMESPACE = (5, 14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that starts a worker with its three pipes.

    command, environment, folder: of the process; it inherits no variable.
    end: cleanup after the command has ended.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    end: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way to make a sandbox from a process.

    name: for `open_sandbox`.
    launch: makes the command that starts a worker. Workers start before their programs are known:
        of the limits it may use `disk_bytes` alone, and a program gets a worker with its own.
        Raises NoSandbox if this machine cannot run it.
    guarantees: of the sandbox.
    """

    name: str
    launch: Callable[[Limits], Launch]
    guarantees: Guarantees = ALL_GUARANTEES


def start_process(launch: Launch, group: MemoryGroup | None = None) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own. Raises SandboxError if it cannot start.

    group: the process and all its descendants belong to it.
    Calls the launch's `end` if there is no process.
    """
    try:
        return subprocess.Popen(
            group.around(launch.command) if group else launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(launch.environment),
            cwd=launch.folder,
            start_new_session=True,
        )
    except OSError as error:
        launch.end()
        raise SandboxError(f"cannot start {launch.command[0]}: {error}") from error


@cache
def source_of(name: str) -> str:
    """Source text of a module of this folder that runs inside a sandbox."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def worker_command(python: str) -> tuple[str, ...]:
    """Command of a worker. python: path of an interpreter, 3.11 or newer, inside the sandbox."""
    return (python, *PYTHON_FLAGS, "-c", f"{source_of('worker.py')}\nmain(0)")


@cache
def interpreter() -> tuple[str, str]:
    """Path of the Python below any virtual environment, and the folder of its files."""
    return os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)


def launch_plainly(limits: Limits) -> Launch:
    """Launch of a worker without any protection, in a folder of its own, removed at its end."""
    folder = tempfile.mkdtemp(prefix="ludic-")
    return Launch(
        command=worker_command(interpreter()[0]),
        environment={**ENVIRONMENT, "HOME": folder},
        folder=folder,
        end=partial(shutil.rmtree, folder, ignore_errors=True),
    )


def launch_natively(limits: Limits) -> Launch:
    """Launch of a worker that confines itself; see `confine`.

    Raises NoSandbox on other systems than Linux, and on a kernel too old. Where users may make no
    namespace, the process ends with exit code 70.
    """
    if sys.platform != "linux":
        raise NoSandbox(f"it is made of Linux's system calls, and this is {sys.platform}")
    uid = program_uid()
    python, prefix = interpreter()
    sizes = file_system_sizes(limits.disk_bytes)
    arguments = (os.getpid(), bool(uid), prefix, hidden_folders(prefix), *sizes)
    # The filter comes last, because the steps before need the calls that it refuses.
    calls = f"confine{arguments!r}\nfilter_calls({syscall_filter()!r})\nmain({uid})"
    text = f"{source_of('confine.py')}{source_of('worker.py')}\n{calls}"
    return Launch(command=(python, *PYTHON_FLAGS, "-c", text), environment=ENVIRONMENT, folder="/")


def hidden_folders(prefix: str) -> list[str]:
    """This package's folder if programs could read it, because it is installed below one of theirs.

    prefix: the interpreter's folder.
    """
    return [str(PACKAGE)] if any(map(PACKAGE.is_relative_to, (prefix, "/usr"))) else []


def file_system_sizes(disk_bytes: int) -> tuple[int, int]:
    """Sizes of /tmp and of /dev/shm, in bytes, that sum to the limit of a program's files.

    The second is half of the limit, but at most 16 MiB. Neither is 0, which would mean no limit.

    >>> file_system_sizes(64 * MEBIBYTE) == (48 * MEBIBYTE, 16 * MEBIBYTE)
    True
    """
    shared = min(SHARED_MEMORY_BYTES, disk_bytes // 2)
    return max(disk_bytes - shared, PAGE_BYTES), max(shared, PAGE_BYTES)


def program_uid() -> int:
    """Id of a new user for the program if this is root, else 0 to keep the user.

    Raises NoSandbox for users on kernels that cannot limit the processes of a user namespace.
    """
    # A root whose user namespace has a single id gets 0, and is treated like any other user.
    if os.geteuid() == 0 and (uid := fresh_uid()):
        return uid
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    if version is None or tuple(map(int, version.groups())) < COUNTS_PER_NAMESPACE:
        raise NoSandbox(
            f"Linux {platform.release()} does not count processes per sandbox; "
            "use Linux 5.14 or newer, or run as root"
        )
    return 0


def fresh_uid() -> int:
    """A random user id that this root may use and that is unlikely to be in use.

    RLIMIT_NPROC counts per user: programs with one id would share the limit.
    """
    # The upper half of the largest range: accounts of people and services have low numbers.
    first, count = max(uid_ranges(), key=lambda one: one[1])
    return first + count // 2 + secrets.randbelow(max(1, count // 2 - 2))


@cache
def uid_ranges() -> tuple[tuple[int, int], ...]:
    """Pairs (first, count) of the user ids in this user namespace; outside of containers one."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return tuple((int(line.split()[0]), int(line.split()[2])) for line in lines)


NATIVE = Backend(name="native", launch=launch_natively)
"""Back end with all guarantees, in namespaces of Linux."""
PLAIN = Backend(
    name="process",
    launch=launch_plainly,
    guarantees=Guarantees(
        network=False, filesystem=False, processes=False, memory=False, cpu=False, disk=False
    ),
)
"""Back end with resource limits only, for trusted programs."""
