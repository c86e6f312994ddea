"""Programs that wait: for input that never comes, or for their caller."""

import asyncio

from ludic_gym.sandbox.types import Limits, Program

LIMITS = Limits(wall_s=300.0, cpu_s=0.5)
MOST_S = 60.0


WAITING = {
    "sleep": "import time; time.sleep(999)",
    "stop": "import os; os.kill(os.getpid(), 19)",
    "pipe": "import os; os.mkfifo('pipe'); open('pipe').read()",
    "family": (
        "import os, time\n"
        "if os.fork() == 0: os.kill(os.getppid(), 19); os.kill(os.getpid(), 19)\n"
        "time.sleep(999)"
    ),
    "thread": "import threading; threading.Lock().acquire() and threading.Event().wait()",
    "dots": "import time\nwhile True: print('.', flush=True); time.sleep(0.05)",
}


async def test_a_program_that_waits_costs_little_more_than_its_cpu_limit(any_sandbox):
    runs = (any_sandbox.run(Program(source=source), limits=LIMITS) for source in WAITING.values())
    results = dict(zip(WAITING, await asyncio.gather(*runs), strict=True))
    ends = {name: (result.ended, result.exit_code) for name, result in results.items()}
    assert ends == dict.fromkeys(WAITING, ("timeout", None))
    # 0.5 + 2 seconds, and those in which the machine did other things.
    times = {name: result.wall_s for name, result in results.items()}
    assert all(2.2 < wall_s < MOST_S for wall_s in times.values()), times


async def test_a_program_that_waits_for_its_caller_has_time(any_sandbox):
    source = "while True: print(input()[::-1], flush=True)"
    session = await any_sandbox.start(Program(source=source), limits=LIMITS)
    for word in (b"ludic", b"cat"):
        await asyncio.sleep(1.4)
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
