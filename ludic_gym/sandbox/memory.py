"""Memory and activity of a program's processes: control groups of Linux, and /proc.

A group counts everything that its processes make the kernel hold: private and shared memory, files
in memory, buffers of pipes and sockets. Both versions of control groups are used, where this user
may make groups. Elsewhere memory is measured, because RLIMIT_AS bounds each process separately, and
no file in memory. See cgroups(7), and memory.rst and cgroup-v2.rst of the kernel's documentation.
"""

import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PREFIX = "ludic-"
REMOVE_S = 1.0
# In this order: memory and swap together may not be less than memory alone.
LIMIT_FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"),
    2: ("memory.max",),
}
# Swap would hold what exceeds the limit.
NO_SWAP = "memory.swap.max"
EVENTS = {1: "memory.oom_control", 2: "memory.events"}
KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
# Of /proc/PID/mountinfo: the root of the mount, where it is, and the controllers of version 1.
MOUNT = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)$", re.MULTILINE)
# A shell joins the group, then becomes the command, all of whose processes are in the group. Joined
# after its start, the command might have a child already that stays outside.
JOIN = 'echo $$ >"$0" && unset PWD OLDPWD SHLVL && exec "$@"'
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROPORTIONAL = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
# Of the kernel, for a file in memory, even an empty one.
INODE_BYTES = 1024
IN_MEMORY = ("tmp", "dev/shm")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group of one program.

    version: 1 or 2. folder: of its files.
    """

    version: int
    folder: Path

    def around(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command, started as a process of the group."""
        return ("/bin/sh", "-c", JOIN, str(self.folder / "cgroup.procs"), *command)

    def bound(self, memory_bytes: int) -> bool:
        """Set the limit; False if the group already holds more than that."""
        try:
            for name in LIMIT_FILES[self.version]:
                # Kernels without accounting of swap or of TCP buffers lack their files.
                if (self.folder / name).exists():
                    (self.folder / name).write_text(str(memory_bytes))
            if (self.folder / NO_SWAP).exists():
                (self.folder / NO_SWAP).write_text("0")
        except OSError:
            return False
        return True

    def exceeded(self) -> bool:
        """True once the kernel has killed a process of the group for its memory."""
        with suppress(OSError):
            match = KILLS.search((self.folder / EVENTS[self.version]).read_text())
            return match is not None and int(match[1]) > 0
        return False

    def removed(self) -> bool:
        """Remove the group; False if one of its processes has not ended yet."""
        try:
            self.folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """The folder in which this process makes its groups, or the reason why it makes none.

    version: of control groups. why_not: "" if groups can be made.
    """

    version: int = 0
    folder: Path = Path()
    why_not: str = ""


def new_group() -> MemoryGroup | None:
    """A new group without a limit; None where this user may make none."""
    where = place()
    if where.why_not:
        return None
    with suppress(OSError):
        return make_group(where.version, where.folder)
    return None


def make_group(version: int, parent: Path) -> MemoryGroup:
    """A new group in that folder. Raises OSError if there can be none."""
    folder = parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    if version == 2:
        # The kernel then ends all processes of the group at once.
        (folder / "memory.oom.group").write_text("1")
    return MemoryGroup(version, folder)


@cache
def place() -> Place:
    """The place for groups of this process, found by making one with a process in it."""
    try:
        texts = [Path(f"/proc/self/{name}").read_text() for name in ("cgroup", "mountinfo")]
        version, here = locate_group(*texts)
    except OSError:
        version, here = 0, Path()
    # In version 2 a group has either processes or groups with controllers, unless it is the root:
    # groups are made beside this process's own.
    folders = {0: (), 1: (here,), 2: (here.parent, here)}[version]
    reasons = []
    for folder in folders:
        try:
            group = make_group(version, folder)
            try:
                subprocess.run(group.around(("true",)), check=True, capture_output=True)
                (group.folder / LIMIT_FILES[version][0]).write_text(str(2**40))
            finally:
                group.removed()
        except (OSError, subprocess.CalledProcessError) as error:
            reasons.append(f"{folder}: {error}")
        else:
            remove_stale_groups(folder)
            return Place(version=version, folder=folder)
    return Place(why_not="; ".join(reasons) or "this system has no control groups of memory")


def locate_group(groups: str, mounts: str) -> tuple[int, Path]:
    """Version and folder of a memory group, by the texts of /proc/PID/cgroup and of mountinfo.

    Version 0 for none.

    >>> mount = "33 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    >>> locate_group("0::/user.slice/a.scope", mount)
    (2, PosixPath('/sys/fs/cgroup/user.slice/a.scope'))
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        # The line of version 2 names no controllers, and comes last.
        version = 1 if "memory" in controllers.split(",") else 0 if controllers else 2
        for root, folder, kind, options in MOUNT.findall(mounts):
            fits = (version == 2) if kind == "cgroup2" else "memory" in options.split(",")
            if version and fits and f"{path}/".startswith(root):
                return version, Path(folder, os.path.relpath(path, root))
    return 0, Path()


def remove_own_groups() -> None:
    """Remove the groups of this process, whose programs end; at its exit."""
    deadline = time.monotonic() + REMOVE_S
    # Not `place()` in a process that has made no group.
    while place.cache_info().currsize and time.monotonic() < deadline:
        groups = [*place().folder.glob(f"{PREFIX}{os.getpid()}-*")]
        if place().why_not or not groups:
            return
        for group in groups:
            with suppress(OSError):
                group.rmdir()
        time.sleep(0.01)


def remove_stale_groups(folder: Path) -> None:
    """Remove the groups of processes that were killed before they could do it."""
    for group in folder.glob(f"{PREFIX}*"):
        pid = group.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            with suppress(OSError):
                group.rmdir()


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
        match = PROPORTIONAL.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
        return int(match[1]) * 1024 if match else 0
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
