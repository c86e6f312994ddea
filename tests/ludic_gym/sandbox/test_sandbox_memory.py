"""Memory groups of the kernel, and the sandboxes of machines that have none."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludic_gym.sandbox import memory
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.launch import PLAIN
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.memory import (
    Place,
    descendants,
    is_idle,
    locate_group,
    make_group,
    new_group,
    place,
)
from ludic_gym.sandbox.memory import exceeds as family_exceeds
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program

UNIFIED = "35 24 0:30 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw"
MEMORY = "36 24 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:11 - cgroup cgroup rw,memory"
PIDS = "37 24 0:32 / /sys/fs/cgroup/pids rw,nosuid shared:12 - cgroup cgroup rw,pids"
INSIDE = "900 880 0:31 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
HOG = "kept = []\nwhile True: kept.append(bytes(1 << 20))"


@pytest.fixture
def group():
    """A group of version 1 or 2, whichever this machine has."""
    group = new_group()
    if group is None:
        pytest.skip(f"there are no memory groups here: {place().why_not}")
    yield group
    deadline = time.monotonic() + 10
    while not group.removed():
        assert time.monotonic() < deadline, group
        time.sleep(0.01)


@pytest.fixture
def without_groups(monkeypatch):
    """A machine on which this user may make no memory group."""
    monkeypatch.setattr(memory, "place", lambda: Place(why_not="not here"))


@pytest.mark.parametrize(
    ("groups", "mounts", "found"),
    [
        ("0::/a/b", UNIFIED, (2, "/sys/fs/cgroup/unified/a/b")),
        ("0::/", UNIFIED, (2, "/sys/fs/cgroup/unified")),
        # Both versions: the memory controller belongs to one of them.
        ("4:memory:/x\n0::/y", f"{PIDS}\n{MEMORY}\n{UNIFIED}", (1, "/sys/fs/cgroup/memory/x")),
        ("8:pids:/x\n0::/y", f"{PIDS}\n{UNIFIED}", (2, "/sys/fs/cgroup/unified/y")),
        # In a container, the mount shows a part of the tree.
        ("4:memory:/docker/ab/c", INSIDE, (1, "/sys/fs/cgroup/memory/c")),
        ("4:memory:/docker/other", INSIDE, (0, ".")),
        ("8:pids:/x", PIDS, (0, ".")),
        ("", "", (0, ".")),
    ],
)
def test_a_group_is_found_by_the_kernels_tables(groups, mounts, found):
    assert locate_group(groups, mounts) == (found[0], Path(found[1]))


def test_processes_of_a_group_share_its_memory(group):
    assert group.bound(64 * MEBIBYTE)
    done = subprocess.run(group.around((sys.executable, "-c", HOG)), check=False)
    assert done.returncode == -9
    assert group.exceeded()


def test_a_group_is_removed_once_its_processes_have_ended(group):
    with subprocess.Popen(group.around(("cat",)), stdin=subprocess.PIPE) as process:
        while "cat" not in Path(f"/proc/{process.pid}/comm").read_text():
            pass
        assert not group.removed()
    while not group.removed():
        pass
    assert not group.folder.exists()


def test_a_command_in_a_group_gets_no_further_variables(group):
    done = subprocess.run(group.around(("/usr/bin/env",)), capture_output=True, env={}, check=True)
    assert done.stdout == b""


def test_groups_of_a_process_that_was_killed_are_removed(group):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = group.folder.parent / f"ludic-{gone.pid}-0"
    left.mkdir()
    memory.remove_stale_groups(left.parent)
    assert not left.exists()
    assert group.folder.exists()


def test_version_2_ends_all_processes_of_a_group_without_swap(tmp_path):
    (group := make_group(2, tmp_path)).folder.joinpath("memory.swap.max").touch()
    group.folder.joinpath("memory.max").touch()
    assert group.bound(5000)
    written = {path.name: path.read_text() for path in group.folder.iterdir()}
    assert written == {"memory.oom.group": "1", "memory.max": "5000", "memory.swap.max": "0"}
    group.folder.joinpath("memory.events").write_text("oom 3\noom_kill 0\noom_group_kill 0\n")
    assert not group.exceeded()
    group.folder.joinpath("memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 1\n")
    assert group.exceeded()


AT_EXIT = """
import ludic_gym as lg
family = "import os, time\\nfor _ in range(9): os.fork()\\ntime.sleep(99)"
limits = lg.Limits(processes=20, memory_bytes=2**27)
sandbox = lg.open_sandbox("process", allow_unsafe=True)
session = lg.run_blocking(sandbox.start(lg.Program(source=family), limits=limits))
print(__import__("os").getpid())
"""


def test_a_process_that_exits_leaves_no_group(group):
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, check=True)
    assert not [*group.folder.parent.glob(f"ludic-{int(done.stdout)}-*")]


@pytest.mark.parametrize("name", ["native", "process"])
async def test_sandboxes_leave_no_group(name, group, opened):
    opened(name)
    before = set(group.folder.parent.glob("ludic-*"))
    sandbox = open_sandbox(name, allow_unsafe=True, warm=2)
    limits = Limits(memory_bytes=256 * MEBIBYTE)
    result = await sandbox.run(Program(source="print(1)"), limits=limits)
    assert result.stdout == b"1\n"
    await sandbox.close()
    deadline = time.monotonic() + 20
    # Others of this process belong to sandboxes that other tests share.
    while left := set(group.folder.parent.glob(f"ludic-{os.getpid()}-*")) - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


FILES = """
for i in range(200):
    with open(f"file{i}", "wb", 0) as file: file.write(bytes(1 << 20))
print("wrote")
"""
SHARED = """
import mmap, os, time
for _ in range(4):
    if os.fork() == 0:
        shared = mmap.mmap(-1, 50 << 20)
        shared.write(bytes(50 << 20))
        time.sleep(999)
time.sleep(999)
"""
PRIVATE = SHARED.replace("mmap.mmap(-1, 50 << 20)", "b'x' * (50 << 20)").replace(
    "shared.write(bytes(50 << 20))", "pass"
)


@pytest.mark.parametrize("source", [FILES, SHARED, PRIVATE], ids=["files", "shared", "private"])
@pytest.mark.parametrize("groups", [True, False], ids=["grouped", "measured"])
async def test_memory_is_bounded_wherever_it_is(source, groups, opened, request):
    opened("native")
    if not groups:
        request.getfixturevalue("without_groups")
    sandbox = open_sandbox("native", warm=0)
    limits = Limits(wall_s=60.0, memory_bytes=128 * MEBIBYTE, disk_bytes=2**30)
    result = await sandbox.run(Program(source=source), limits=limits)
    # Measured, files may be complete before they are seen.
    assert result.ended == "memory" or (not groups and result.stdout == b"wrote\n")
    await sandbox.close()


async def test_a_job_that_is_larger_than_the_memory_is_out_of_memory(group):
    sandbox = LocalSandbox(PLAIN, warm=0)
    program = Program(source="print(1)", files={"large": bytes(40 * MEBIBYTE)})
    limits = Limits(memory_bytes=20 * MEBIBYTE)
    result = await sandbox.run(program, limits=limits)
    assert (result.ended, result.stdout) == ("memory", b"")
    await sandbox.close()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are weighed by /proc")

# Two processes with 64 MiB each, of which the second is a fork that shares 32 MiB of them.
FAMILY = """
import os, sys
shared = b"x" * (32 << 20)
child = os.fork()
own = b"y" * (32 << 20)
if child: print(child, flush=True)
sys.stdin.read()
"""


def exceeds(pid, limit):
    return family_exceeds(list(descendants(pid)), limit)


@pytest.fixture
def family():
    """A process and its fork, which hold 96 MiB: 32 together and 32 each."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        child = int(parent.stdout.readline())
        # The child has written its own part when the parent says so, or soon after.
        while not exceeds(parent.pid, 96 * MEBIBYTE):
            assert parent.poll() is None
        yield parent.pid, child
        parent.stdin.close()


def test_a_family_is_a_process_and_its_descendants(family):
    parent, child = family
    assert list(descendants(parent)) == [parent, child]
    assert parent in descendants(os.getpid())


def test_what_a_fork_shares_counts_once(family):
    parent, _ = family
    # Counted twice it would be 128 MiB; an interpreter adds about 10.
    assert not exceeds(parent, 124 * MEBIBYTE)


def test_a_process_that_waits_is_idle_and_one_that_wants_a_cpu_is_not(family):
    parent, child = family
    while not is_idle([parent, child]):
        pass
    # Four processes on one CPU: at any moment, three of them are waiting for it.
    cpu = min(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen(
            [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"]
        )
        for _ in range(4)
    ]
    time.sleep(1)
    try:
        seen = [is_idle([parent, child, one.pid]) for _ in range(50) for one in busy]
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert not any(seen)


def test_a_stopped_process_is_idle():
    with subprocess.Popen(["sleep", "99"]) as process:
        process.send_signal(signal.SIGSTOP)
        while " T " not in Path(f"/proc/{process.pid}/stat").read_text():
            pass
        assert is_idle([process.pid])
        process.kill()
