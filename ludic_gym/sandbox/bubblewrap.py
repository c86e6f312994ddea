"""Sandboxes by bubblewrap (`bwrap`): new namespaces, a file system of read-only binds, no network.

Run by root, each program has a user id of its own. Run by a user, it is the user "nobody" of a
user namespace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.launch import (
    ENVIRONMENT,
    Launch,
    interpreter,
    killed_by_a_signal,
    worker_command,
)
from ludic_gym.sandbox.linux import file_system_sizes, fresh_uid, require_counted_processes
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import Guarantees, Limits

NOBODY = 65534
SYSTEM_LINKS = ("bin", "lib", "lib32", "lib64", "sbin")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The back end."""

    name = "bubblewrap"
    guarantees = Guarantees(
        network=True, filesystem=True, processes=True, memory=True, cpu=True, disk=True
    )

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """See Backend: file systems have their size from the start."""
        return (limits.disk_bytes,)

    def launch(self, limits: Limits) -> Launch:
        """See Backend. Raises NoSandbox without bwrap, or on a kernel too old for users."""
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise NoSandbox("bwrap is not installed: apt install bubblewrap")
        return launch_as(bwrap, os.geteuid(), limits)

    def failed(self, exit_code: int) -> bool:
        """See Backend."""
        return killed_by_a_signal(exit_code)


def launch_as(bwrap: str, host_uid: int, limits: Limits) -> Launch:
    """Launch of a worker by the user of that id."""
    root = host_uid == 0
    if not root:
        require_counted_processes()
    python, prefix = interpreter()
    descriptor = memory_file(syscall_filter())
    command = (
        bwrap,
        *(as_root() if root else as_user()),
        *isolation(),
        *file_system(prefix, limits.disk_bytes),
        "--seccomp",
        str(descriptor),
        "--",
        *worker_command(python, fresh_uid() if root else 0),
    )
    return Launch(command=command, descriptors=(descriptor,))


def as_root() -> tuple[str, ...]:
    """Options for root: with these two capabilities the worker changes its user, for good."""
    kept = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    return ("--cap-drop", "ALL", *kept)


def as_user() -> tuple[str, ...]:
    """Options for users other than root."""
    unmapped = ("--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY))
    return (*unmapped, "--cap-drop", "ALL")


def isolation() -> Iterator[str]:
    """Options for new namespaces, and for the end of the program with its parent."""
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    yield from ("--unshare-cgroup-try", "--hostname", "sandbox")
    yield from ("--die-with-parent", "--new-session", "--clearenv")
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)


def file_system(prefix: str, disk_bytes: int) -> Iterator[str]:
    """Options for a root of read-only binds, and of that many bytes in memory."""
    own, shared = file_system_sizes(disk_bytes)
    for folder in reversed(PurePosixPath(prefix).parents[:-1]):
        # Created by bwrap itself, they could be entered by its own user only.
        yield from ("--perms", "0755", "--dir", str(folder))
    yield from ("--ro-bind", "/usr", "/usr")
    if not PurePosixPath(prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", prefix, prefix)
    yield from system_links()
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from sized("/tmp", own)
    yield from sized("/dev/shm", shared)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp")


def sized(folder: str, size: int) -> tuple[str, ...]:
    """Options for a file system in memory that every user may write to."""
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


def memory_file(content: bytes) -> int:
    """A descriptor from which the content can be read once."""
    descriptor = os.memfd_create("ludic")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
