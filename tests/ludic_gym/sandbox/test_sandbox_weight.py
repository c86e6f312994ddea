import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludic_gym.sandbox.memory import descendants, is_idle
from ludic_gym.sandbox.memory import exceeds as family_exceeds
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program

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


def test_a_process_that_has_gone_weighs_nothing():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not exceeds(gone.pid, 1)


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


def test_nothing_is_known_of_a_process_that_has_gone():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not is_idle([gone.pid])


async def test_many_processes_share_the_memory_of_one_program(any_sandbox):
    source = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        mine = b"x" * (100 << 20)
        time.sleep(999)
time.sleep(999)
"""
    limits = Limits(wall_s=120.0, memory_bytes=256 * MEBIBYTE)
    result = await any_sandbox.run(Program(source=source), limits=limits)
    assert (result.ended, result.exit_code) == ("memory", None)
