"""The memory that a process and all its descendants hold together.

RLIMIT_AS bounds each process alone; a program with many processes is bounded by being weighed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROPORTIONAL = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


def exceeds(pid: int, limit: int) -> bool:
    """Whether the family of a process holds more than that many bytes of its own."""
    family = list(descendants(pid))
    # The quick sum counts what a fork still shares with its parent twice.
    return sum(map(private_bytes, family)) > limit < sum(map(proportional_bytes, family))


def descendants(pid: int) -> Iterator[int]:
    """The process, its children, and theirs; those that can be found."""
    yield pid
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from descendants(int(child))


def private_bytes(pid: int) -> int:
    """Resident memory that is no file's; 0 for a process that has gone."""
    with suppress(OSError):
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * PAGE_BYTES
    return 0


def proportional_bytes(pid: int) -> int:
    """Resident memory, of what several processes share only the part; 0 for one that has gone."""
    with suppress(OSError):
        found = PROPORTIONAL.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
        return int(found[1]) * 1024 if found else 0
    return private_bytes(pid)
