"""Sandboxes from threads, from loops, from forks, and from none of these."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import Limits, Program

PROGRAM = Program(source="print(6 * 7)")
PATIENT = Limits(wall_s=120.0)
# Python 3.12 warns of any fork beside threads; that such forks work is what is tested.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def plain():
    """A sandbox that works on every machine; how it protects is not the question here."""
    sandbox = open_sandbox("process", allow_unsafe=True, warm=1)
    yield sandbox
    run_blocking(sandbox.close())


def answer(sandbox):
    return run_blocking(sandbox.run(PROGRAM, limits=PATIENT)).stdout


def test_no_loop_is_needed(plain):
    assert answer(plain) == b"42\n"


async def test_a_running_loop_is_no_obstacle(plain):
    assert answer(plain) == b"42\n"
    assert (await plain.run(PROGRAM, limits=PATIENT)).stdout == b"42\n"


def test_loops_that_come_and_go_share_a_sandbox(plain):
    for _ in range(3):
        assert asyncio.run(plain.run(PROGRAM, limits=PATIENT)).stdout == b"42\n"


def test_threads_share_a_sandbox_and_its_one_thread(plain):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(answer(plain))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"42\n"] * 8
    assert [thread.name for thread in threading.enumerate()].count("ludic-sandbox") == 1


def test_waiting_on_the_thread_that_does_the_work_is_refused():
    async def inner():
        run_blocking(asyncio.sleep(0))

    with pytest.raises(SandboxError, match="await it there"):
        run_blocking(inner())


@forks
def test_a_fork_has_sandboxes_of_its_own(plain):
    assert answer(plain) == b"42\n"
    child = os.fork()
    if not child:
        os._exit(0 if answer(plain) == b"42\n" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answer(plain) == b"42\n"


@forks
def test_a_fork_keeps_no_program_from_the_end_of_its_input(plain):
    program = Program(source="import sys; print(len(sys.stdin.read()))")
    session = run_blocking(plain.start(program, limits=PATIENT))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        # Until the parent has its result.
        os.read(reading, 1)
        os._exit(0)
    assert run_blocking(session.finish()).stdout == b"0\n"
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)


@pytest.mark.parametrize("last", ["", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
def test_a_script_that_never_closes_ends_cleanly(last):
    script = f"""
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import Limits, Program
sandbox = open_sandbox("process", allow_unsafe=True, warm=3)
print(run_blocking(sandbox.run(Program(source="print(1)"))).exit_code, flush=True)
try:
    {last or "pass"}
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
