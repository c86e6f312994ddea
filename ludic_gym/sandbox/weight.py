"""Memory and activity of a process and all its descendants, read from /proc.

Where no memory group can be made, the memory of a program is measured: RLIMIT_AS bounds each of its
processes separately, and no file in memory.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROPORTIONAL = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
# Of the kernel, for a file in memory, even an empty one.
INODE_BYTES = 1024
IN_MEMORY = ("tmp", "dev/shm")


def exceeds(family: Sequence[int], limit: int) -> bool:
    """True if processes and the files of their sandbox hold more memory than the limit, in bytes.

    family: from `descendants`, of which the first is outside the sandbox. False once they have
    ended, and where there is no /proc.
    """
    files = file_bytes(family[1]) if len(family) > 1 else 0
    # The first sum is fast, but counts shared pages once per process. Only if it exceeds the limit,
    # the slow and exact sum is computed.
    processes = sum(map(resident_bytes, family))
    return processes + files > limit < sum(map(proportional_bytes, family)) + files


def descendants(pid: int) -> Iterator[int]:
    """The process and all its descendants that still exist."""
    yield pid
    # By thread: the kernel lists a child with the thread that made it.
    for path in threads(pid):
        with suppress(OSError):
            for child in (path / "children").read_text().split():
                yield from descendants(int(child))


def threads(pid: int) -> list[Path]:
    """Folders of a process's threads; none after its end."""
    # Path.glob would raise an error for a thread that ends meanwhile.
    with suppress(OSError):
        return [Path(f"/proc/{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def is_idle(family: Sequence[int]) -> bool:
    """True if no thread of these processes runs or waits for a CPU.

    False where there is no /proc. A stopped process is idle, and one that waits for a disk.
    """
    states = []
    for path in (path for pid in family for path in threads(pid)):
        with suppress(OSError):
            # The name in front may hold spaces and brackets.
            states.append((path / "stat").read_text().rpartition(")")[2].split()[0])
    return bool(states) and "R" not in states


def resident_bytes(pid: int) -> int:
    """Resident memory, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def proportional_bytes(pid: int) -> int:
    """Resident memory in bytes, shared pages divided by their owners; 0 for an ended process."""
    with suppress(OSError):
        found = PROPORTIONAL.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
        return int(found[1]) * 1024 if found else 0
    return resident_bytes(pid)


def file_bytes(pid: int) -> int:
    """Bytes of the files in memory of a process's sandbox; 0 without one, or after its end."""
    total = 0
    for name in IN_MEMORY:
        folder = os.path.join("/proc", str(pid), "root", name)
        with suppress(OSError):
            # The host's own, for a process without a file system of its own.
            if os.stat(folder).st_dev in (os.stat(f"/{name}").st_dev, os.stat("/").st_dev):
                continue
            state = os.statvfs(folder)
            total += (state.f_blocks - state.f_bfree) * state.f_frsize
            total += (state.f_files - state.f_ffree) * INODE_BYTES
    return total
