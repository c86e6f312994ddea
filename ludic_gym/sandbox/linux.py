"""Back ends of Linux, in new namespaces: by bubblewrap (`bwrap`), or by system calls alone.

Run by root, each program has a user id of its own. Run by a user, it is a user of a new user
namespace. With bubblewrap, the file system has read-only binds of the interpreter and the system's
programs and nothing else. The native back end, for machines without bubblewrap, leaves the host's
files in place: a program can see their names, but Landlock refuses to open them.
"""

import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.launch import (
    ENVIRONMENT,
    PYTHON_FLAGS,
    Backend,
    Launch,
    hidden_folders,
    interpreter,
    worker_command,
    worker_source,
)
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import MEBIBYTE, Limits

# The kernel's overflow id: it owns no files.
NO_USER = 65534
SYSTEM_LINKS = ("bin", "lib", "lib32", "lib64", "sbin")
READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
# Without AF_UNIX: Landlock does not restrict connections to socket files of the host.
NATIVE_FAMILIES = (2, 10)
SHARED_MEMORY_BYTES = 16 * MEBIBYTE
PAGE_BYTES = 4096
# Before this, RLIMIT_NPROC counted all processes that the user has anywhere.
COUNTS_PER_NAMESPACE = (5, 14)


def launch_bubblewrap(limits: Limits) -> Launch:
    """Launch by bwrap. Raises NoSandbox without it, or on a kernel too old for users.

    limits: only `disk_bytes` is used, for the file systems in memory.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise NoSandbox("bwrap is not installed: apt install bubblewrap")
    uid = program_uid()
    python, prefix = interpreter()
    rules = syscall_filter()
    # The last step that can fail before `spawned`, which closes the descriptor.
    descriptor = os.memfd_create("ludic")
    os.write(descriptor, rules)
    os.lseek(descriptor, 0, os.SEEK_SET)
    command = (
        bwrap,
        *(AS_ROOT if uid else AS_USER),
        *isolation(),
        *file_system(prefix, limits.disk_bytes),
        *("--seccomp", str(descriptor), "--"),
        *worker_command(python, uid),
    )
    return Launch(command=command, descriptors=(descriptor,))


def launch_native(limits: Limits) -> Launch:
    """Launch by system calls. Raises NoSandbox on other systems, and on a kernel too old.

    limits: only `disk_bytes` is used. A kernel without Landlock or user namespaces is found when
    the process starts, which then ends with exit code 70.
    """
    if sys.platform != "linux":
        raise NoSandbox(f"it is made of Linux's system calls, and this is {sys.platform}")
    uid = program_uid()
    python, prefix = interpreter()
    sizes = list(file_system_sizes(limits.disk_bytes))
    hidden = [*hidden_folders(prefix)]
    arguments = (os.getpid(), bool(uid), prefix, [*READABLE], sizes, hidden)
    # The filter comes last, because the steps before need the calls that it refuses.
    calls = f"confine(*{arguments!r})\nfilter_calls({syscall_filter(families=NATIVE_FAMILIES)!r})"
    text = f"{confining_source()}\n{calls}\nmain({uid})"
    return Launch(command=(python, *PYTHON_FLAGS, "-c", text), environment=ENVIRONMENT, folder="/")


BUBBLEWRAP = Backend(
    name="bubblewrap", launch=launch_bubblewrap, fixed=lambda limits: (limits.disk_bytes,)
)
NATIVE = Backend(name="native", launch=launch_native, fixed=lambda limits: (limits.disk_bytes,))

# With these two capabilities, which root alone has, the worker changes its user, for good.
AS_ROOT = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
AS_USER = ("--unshare-user", "--uid", str(NO_USER), "--gid", str(NO_USER), "--cap-drop", "ALL")


def isolation() -> Iterator[str]:
    """Options for new namespaces, and for the end of the program with its parent.

    The program sees no process, connection, shared memory, host name or variable of this machine.
    `--new-session` takes its terminal away, into which it could otherwise push input (TIOCSTI).
    """
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    yield from ("--unshare-cgroup-try", "--hostname", "sandbox")
    yield from ("--die-with-parent", "--new-session", "--clearenv")
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)


def file_system(prefix: str, disk_bytes: int) -> Iterator[str]:
    """Options for a root of read-only binds, and of that many bytes in memory.

    prefix: the interpreter's folder. disk_bytes: divided as in `file_system_sizes`.
    """
    private, shared = file_system_sizes(disk_bytes)
    for folder in reversed(PurePosixPath(prefix).parents[:-1]):
        # Created by bwrap itself, they could be entered by its own user only.
        yield from ("--perms", "0755", "--dir", str(folder))
    yield from ("--ro-bind", "/usr", "/usr")
    if not PurePosixPath(prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", prefix, prefix)
    for hidden in hidden_folders(prefix):
        yield from ("--perms", "0755", "--size", str(PAGE_BYTES), "--tmpfs", hidden)
        yield from ("--remount-ro", hidden)
    yield from system_links()
    # Mounted here, /proc has the processes of the new namespace, and /dev no disks.
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from sized("/tmp", private)
    yield from sized("/dev/shm", shared)
    # Last, because the mounts above need folders in both.
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp")


def sized(folder: str, size: int) -> tuple[str, ...]:
    """Options for a file system in memory that every user may write to. size: in bytes."""
    return ("--perms", "1777", "--size", str(size), "--tmpfs", folder)


@cache
def system_links() -> tuple[str, ...]:
    """Options for /bin, /lib and so on: links or folders, as on this machine."""
    options: list[str] = []
    for name in SYSTEM_LINKS:
        path = Path("/") / name
        if path.is_symlink():
            options += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    return tuple(options)


@cache
def confining_source() -> str:
    """Source text of `confine`, followed by the worker's."""
    confining = Path(__file__).with_name("confine.py").read_text(encoding="utf-8")
    return confining + worker_source()


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
    uid = fresh_uid() if os.geteuid() == 0 else 0
    # A root whose user namespace has a single id gets 0, and is treated like any other user.
    if uid:
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
