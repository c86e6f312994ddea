"""Common parts of the back ends that use Linux namespaces: sizes, user ids, kernel versions."""

from __future__ import annotations

import platform
import re
import secrets
from functools import cache
from pathlib import Path

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.types import MEBIBYTE

SHARED_MEMORY_BYTES = 16 * MEBIBYTE
PAGE_BYTES = 4096
# Before this, RLIMIT_NPROC counted all processes that the user has anywhere.
COUNTS_PER_NAMESPACE = (5, 14)


def file_system_sizes(disk_bytes: int) -> tuple[int, int]:
    """Sizes of /tmp and of /dev/shm, in bytes, that sum to the limit of a program's files.

    The second is half of the limit, but at most 16 MiB. Neither is 0, which would mean no limit.
    """
    shared = min(SHARED_MEMORY_BYTES, disk_bytes // 2)
    return max(disk_bytes - shared, PAGE_BYTES), max(shared, PAGE_BYTES)


def require_counted_processes() -> None:
    """Raise NoSandbox on kernels that cannot limit the processes of a user namespace."""
    if kernel() < COUNTS_PER_NAMESPACE:
        raise NoSandbox(
            f"Linux {platform.release()} does not count processes per sandbox; "
            "use Linux 5.14 or newer, or run as root"
        )


def kernel() -> tuple[int, ...]:
    """Version of the kernel: (5, 14) for "5.14.0-generic"."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return tuple(map(int, found.groups())) if found else (0, 0)


def fresh_uid() -> int:
    """A random user id that this root may use and that is unlikely to be in use.

    RLIMIT_NPROC counts per user: programs with one id would share the limit.
    """
    # The upper half of the largest range: accounts of people and services have low numbers.
    first, count = max(uid_ranges(), key=lambda one: one[1])
    return first + count // 2 + secrets.randbelow(max(1, count // 2 - 2))


@cache
def uid_ranges() -> tuple[tuple[int, int], ...]:
    """Pairs (first, count) of the user ids in this user namespace."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return tuple((int(line.split()[0]), int(line.split()[2])) for line in lines)
