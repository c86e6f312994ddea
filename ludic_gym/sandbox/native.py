"""Sandboxes by system calls alone, for Linux machines without bubblewrap.

The worker's own process sets up namespaces, Landlock and a filter of system calls. Unlike in
bubblewrap, a program can see the names of the host's files, but cannot open them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.launch import (
    ENVIRONMENT,
    PYTHON_FLAGS,
    Launch,
    interpreter,
    killed_by_a_signal,
    worker_source,
)
from ludic_gym.sandbox.linux import file_system_sizes, fresh_uid, require_counted_processes
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import Guarantees, Limits

READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
# Without AF_UNIX: Landlock does not restrict connections to socket files of the host.
FAMILIES = (2, 10)
FUTURE = "from __future__ import annotations\n"


@dataclass(frozen=True, slots=True)
class Native:
    """The back end."""

    name = "native"
    guarantees = Guarantees(
        network=True, filesystem=True, processes=True, memory=True, cpu=True, disk=True
    )

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """See Backend: file systems have their size from the start."""
        return (limits.disk_bytes,)

    def launch(self, limits: Limits) -> Launch:
        """See Backend. Raises NoSandbox on other systems, and on a kernel too old for users."""
        if sys.platform != "linux":
            raise NoSandbox(f"it is made of Linux's system calls, and this is {sys.platform}")
        return launch_as(os.geteuid(), limits)

    def failed(self, exit_code: int) -> bool:
        """See Backend."""
        return killed_by_a_signal(exit_code)


def launch_as(host_uid: int, limits: Limits) -> Launch:
    """Launch of a worker by the user of that id."""
    root = host_uid == 0
    if not root:
        require_counted_processes()
    python, prefix = interpreter()
    arguments = (os.getpid(), root, prefix, [*READABLE], list(file_system_sizes(limits.disk_bytes)))
    # The filter comes last, because the steps before need the calls that it refuses.
    calls = f"confine(*{arguments!r})\nfilter_calls({syscall_filter(families=FAMILIES)!r})"
    text = f"{source()}\n{calls}\nmain({fresh_uid() if root else 0})"
    return Launch(command=(python, *PYTHON_FLAGS, "-c", text), environment=ENVIRONMENT, folder="/")


@cache
def source() -> str:
    """Source text of `confine`, followed by the worker's."""
    confining = Path(__file__).with_name("confine.py").read_text(encoding="utf-8")
    return confining + worker_source().replace(FUTURE, "")
