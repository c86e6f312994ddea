"""Sandboxes that break differ from programs that fail, and leave nothing behind."""

import asyncio
import os
import random
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.choice import why_not
from ludic_gym.sandbox.launch import NATIVE, PLAIN, Launch
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.types import Limits, Program

PATIENT = Limits(wall_s=120.0)
SEED = 7
# The command keeps the number of the shell that it replaces.
KILLER = '(sleep "$1"; kill -9 $$) & shift; exec "$@"'


def crashing(backend, dice, share):
    """A back end some of whose processes are killed from outside, soon after they started."""

    def launch(limits):
        launch = backend.launch(limits)
        if dice.random() >= share:
            return launch
        killer = ("sh", "-c", KILLER, "sh", f"{dice.uniform(0.1, 0.5):.3f}")
        return replace(launch, command=(*killer, *launch.command))

    return replace(backend, launch=launch)


@pytest.fixture
def backend():
    if reason := why_not():
        pytest.skip(f"no sandbox works here: {reason}")
    return NATIVE


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def children():
    """Processes below this one, zombies too."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += path.read_text().split()
    return found


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A folder for temporary files in which no other process makes any."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left():
    """Things that a sandbox may leave behind: descriptors, processes, folders."""
    return descriptors(), children(), set(os.listdir(tempfile.gettempdir()))


async def quiet():
    """State once it no longer changes: other tests' sandboxes refill their reserves."""
    before, now = None, left()
    while now != before:
        await asyncio.sleep(0.1)
        before, now = now, left()
    return now


async def answer(sandbox, number, crashes):
    """Result of the program, after as many attempts as it takes."""
    source = f"import time; time.sleep({number % 5 * 0.02}); print({number} ** 2)"
    for _ in range(8):
        try:
            result = await sandbox.run(Program(source=source), limits=PATIENT)
        except SandboxError as error:
            crashes.append(str(error))
            continue
        return result
    raise AssertionError(f"submission {number} was lost")


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "share"), [(40, 0.15), pytest.param(1000, 0.05, marks=pytest.mark.slow)]
)
async def test_nothing_is_lost_or_left_when_sandboxes_crash(backend, count, share):
    crashes = []
    sandbox = LocalSandbox(crashing(backend, random.Random(SEED), share), warm=4, concurrency=16)
    before = await quiet()
    results = await asyncio.gather(*(answer(sandbox, i, crashes) for i in range(count)))
    await sandbox.close()
    # A crash that leaves no trace of itself would look like the program's own failure.
    assert [(r.exit_code, int(r.stdout)) for r in results] == [(0, i**2) for i in range(count)]
    assert left() == before
    assert all("broke while a program ran in it; exit code -9" in one for one in crashes)
    assert crashes or count < 1000


async def test_a_sandbox_that_is_killed_while_a_program_runs_is_an_error(backend):
    known = set((await quiet())[1])
    sandbox = LocalSandbox(backend, warm=0)
    session = await sandbox.start(Program(source="import time; time.sleep(999)"), limits=PATIENT)
    (keeper,) = set(children()) - known
    os.kill(int(keeper), signal.SIGKILL)
    with pytest.raises(SandboxError, match="broke while a program ran in it; exit code -9"):
        await session.finish()
    await sandbox.close()


async def test_one_that_died_while_it_waited_is_replaced(backend):
    known = set((await quiet())[1])
    sandbox = LocalSandbox(backend, warm=1)
    await sandbox.run(Program(source=""), limits=PATIENT)
    killed = set(children()) - known
    for waiting in killed:
        os.kill(int(waiting), signal.SIGKILL)
    # Until the kernel has ended its namespace, a worker may still begin a program.
    while killed & set(children()):
        await asyncio.sleep(0.01)
    result = await sandbox.run(Program(source="print(1)"), limits=PATIENT)
    assert result.stdout == b"1\n"
    await sandbox.close()


def lingering(limits):
    """Launch of a keeper that ends half a second after the program, as on a busy machine."""
    launch = PLAIN.launch(limits)
    shell = '"$@"; code=$?; exec 0<&- 1>&- 2>&-; sleep 0.5; exit $code'
    return replace(launch, command=("sh", "-c", shell, "sh", *launch.command))


async def test_a_program_that_has_ended_is_not_said_to_be_killed():
    sandbox = LocalSandbox(replace(PLAIN, launch=lingering), warm=0)
    session = await sandbox.start(Program(source="import os; os._exit(3)"), limits=PATIENT)
    assert await session.receive_line() is None
    result = await session.kill()
    assert (result.ended, result.exit_code) == ("exited", 3)
    await sandbox.close()


def failing(limits):
    """Launch of a worker that cannot start."""
    return Launch(command=("sh", "-c", "echo out of order >&2; exit 3"))


async def test_workers_that_do_not_start_are_an_error_that_shows_why():
    sandbox = LocalSandbox(replace(PLAIN, launch=failing), warm=1)
    with pytest.raises(SandboxError, match="does not start; exit code 3, stderr: out of order"):
        await sandbox.run(Program(source=""))
    await sandbox.close()


async def test_plain_processes_leave_no_folder():
    before = (await quiet())[2]
    sandbox = LocalSandbox(PLAIN, warm=2)
    await sandbox.run(Program(source="open('x', 'w').close()"), limits=PATIENT)
    made = left()[2] - before
    assert made
    await sandbox.close()
    assert not made & left()[2]
