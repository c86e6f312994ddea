"""Memory of a process and all its descendants together.

RLIMIT_AS bounds each process separately. A program with many processes is measured instead.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROPORTIONAL = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


def exceeds(pid: int, limit: int) -> bool:
    """True if a process and its descendants hold more private memory than the limit, in bytes.

    False once they have ended, and where there is no /proc.
    """
    family = list(descendants(pid))
    # The first sum is fast, but counts pages that a fork still shares with its parent twice. Only
    # if it exceeds the limit, the slow and exact sum is computed.
    return sum(map(private_bytes, family)) > limit < sum(map(proportional_bytes, family))


def descendants(pid: int) -> Iterator[int]:
    """The process and all its descendants that still exist."""
    yield pid
    with suppress(OSError):
        # By thread: the kernel lists a child with the thread that made it.
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from descendants(int(child))


def private_bytes(pid: int) -> int:
    """Resident memory without files, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * PAGE_BYTES
    return 0


def proportional_bytes(pid: int) -> int:
    """Resident memory in bytes, shared pages divided by their owners; 0 for an ended process."""
    with suppress(OSError):
        found = PROPORTIONAL.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
        return int(found[1]) * 1024 if found else 0
    return private_bytes(pid)
