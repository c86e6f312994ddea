"""Programs that wait: for input that never comes, or for their caller."""

import asyncio

import pytest

from ludic_gym.sandbox.types import Limits, Program

LIMITS = Limits(wall_s=300.0, cpu_s=1.0)
MOST_S = 60.0


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(999)",
        "import os; os.kill(os.getpid(), 19)",
        "import os; os.mkfifo('pipe'); open('pipe').read()",
        "import os\nif os.fork() == 0: os.kill(os.getppid(), 19); os.kill(os.getpid(), 19)",
        "import threading; threading.Lock().acquire() and threading.Event().wait()",
        "import time\nwhile True: print('.', flush=True); time.sleep(0.05)",
    ],
    ids=["sleep", "stop", "pipe", "family", "thread", "dots"],
)
async def test_a_program_that_waits_costs_little_more_than_its_cpu_limit(any_sandbox, source):
    result = await any_sandbox.run(Program(source=source), limits=LIMITS)
    assert (result.ended, result.exit_code) == ("timeout", None)
    # 1 + 2 seconds, and those in which the machine did other things.
    assert 2.5 < result.wall_s < MOST_S


async def test_a_program_that_waits_for_its_caller_has_time(any_sandbox):
    source = "while True: print(input()[::-1], flush=True)"
    session = await any_sandbox.start(Program(source=source), limits=LIMITS)
    for word in (b"ludic", b"cat"):
        await asyncio.sleep(2.0)
        await session.send(word + b"\n")
        assert await session.receive_line() == word[::-1]
    assert (await session.kill()).ended == "killed"


async def test_a_caller_that_waits_for_a_program_that_waits_for_it_is_told(any_sandbox):
    session = await any_sandbox.start(Program(source="input()"), limits=LIMITS)
    assert await session.receive_line() is None
    assert (await session.finish()).ended == "timeout"


async def test_pauses_are_no_fault(any_sandbox):
    source = "import time\nfor _ in range(4): time.sleep(0.3)\nprint('done')"
    result = await any_sandbox.run(Program(source=source), limits=LIMITS)
    assert (result.ended, result.stdout) == ("exited", b"done\n")
