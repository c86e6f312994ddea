"""Contract of a run, the same in every sandbox."""

import asyncio

import pytest

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.types import Limits, Program

PATIENT = Limits(wall_s=120.0, cpu_s=60.0)


async def run(sandbox, source, **kwargs):
    return await sandbox.run(Program(source=source), limits=PATIENT, **kwargs)


async def test_a_program_reads_its_input_and_writes_its_output(any_sandbox):
    source = "import sys; print(sys.stdin.read().upper()); print('aside', file=sys.stderr)"
    result = await run(any_sandbox, source, stdin=b"word")
    assert (result.stdout, result.stderr) == (b"WORD\n", b"aside\n")
    assert (result.exit_code, result.ended) == (0, "exited")
    assert (result.stdout_cut, result.stderr_cut) == (False, False)


async def test_a_program_is_main_and_has_its_arguments_and_files(any_sandbox):
    program = Program(
        source="import sys, helper; print(__name__, sys.argv[1:], helper.x, open('a/b').read())",
        arguments=("one", "two words"),
        files={"helper.py": b"x = 7", "a/b": b"deep"},
    )
    result = await any_sandbox.run(program, limits=PATIENT)
    assert result.stdout == b"__main__ ['one', 'two words'] 7 deep\n"


@pytest.mark.parametrize(
    ("source", "code", "last_line"),
    [
        ("1 / 0", 1, b"ZeroDivisionError: division by zero"),
        ("def f(:", 1, b"SyntaxError: invalid syntax"),
        ("x = '\ud800'", 1, b"can't decode byte"),
        ("\0", 1, b"null bytes"),
        ("import sys; sys.exit('bye')", 1, b"bye"),
        ("import sys; sys.exit(3)", 3, b""),
        ("import os; os._exit(0)", 0, b""),
        ("", 0, b""),
        ("def f(): f()\nf()", 1, b"RecursionError"),
        ("print('ünïcode ✓')", 0, b""),
    ],
)
async def test_what_a_program_does_to_itself_is_a_result(any_sandbox, source, code, last_line):
    result = await run(any_sandbox, source)
    assert (result.exit_code, result.ended) == (code, "exited")
    assert last_line in result.stderr.rstrip().rpartition(b"\n")[2]


@pytest.mark.parametrize(
    ("source", "limits", "ended", "code"),
    [
        ("while True: pass", Limits(wall_s=120.0, cpu_s=1.0), "cpu", 152),
        ("import time; time.sleep(999)", Limits(wall_s=0.5), "timeout", None),
        ("x = bytearray(10**9)", PATIENT, "memory", 1),
        ("while True: print('x' * 999)", PATIENT, "output", None),
        ("import os; os.kill(os.getpid(), 11)", PATIENT, "signal", 139),
    ],
)
async def test_the_result_says_how_a_program_ended(any_sandbox, source, limits, ended, code):
    result = await any_sandbox.run(Program(source=source), limits=limits)
    assert (result.ended, result.exit_code) == (ended, code)


async def test_output_is_kept_up_to_the_limit(any_sandbox):
    limits = Limits(wall_s=120.0, output_bytes=5)
    result = await any_sandbox.run(Program(source="print('1234')"), limits=limits)
    assert (result.stdout, result.stdout_cut, result.ended) == (b"1234\n", False, "exited")
    result = await any_sandbox.run(Program(source="print('12345')"), limits=limits)
    assert (result.stdout, result.stdout_cut, result.ended) == (b"12345", True, "output")


async def test_another_interpreter_gets_the_source_as_a_file(any_sandbox):
    program = Program(source="read x; echo $1 $x", interpreter=("sh",), arguments=("got",))
    result = await any_sandbox.run(program, stdin=b"it\n", limits=PATIENT)
    assert (result.stdout, result.exit_code) == (b"got it\n", 0)


async def test_an_interpreter_that_is_missing_is_the_programs_failure(any_sandbox):
    program = Program(source="", interpreter=("no-such-thing",))
    result = await any_sandbox.run(program, limits=PATIENT)
    assert result.exit_code == 127
    assert b"no-such-thing" in result.stderr


async def test_input_that_nobody_reads_and_input_that_is_long_hold_nothing_up(any_sandbox):
    long = b"y" * 3_000_000
    assert (await run(any_sandbox, "print(1)", stdin=long)).stdout == b"1\n"
    counting = "import sys; print(len(sys.stdin.buffer.read()))"
    assert (await run(any_sandbox, counting, stdin=long)).stdout == b"3000000\n"


async def test_every_program_begins_with_an_empty_folder_and_the_same_hashes(any_sandbox):
    source = "import os; print(hash('a'), os.listdir()); open('left', 'w').close()"
    first, second = [await run(any_sandbox, source) for _ in range(2)]
    assert first.stdout == second.stdout
    assert first.stdout.endswith(b" ['main.py']\n")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a\0b"])
async def test_files_outside_the_folder_are_refused(any_sandbox, name):
    with pytest.raises(ConfigError, match="is no relative name"):
        await any_sandbox.run(Program(source="", files={name: b""}))


async def test_files_that_do_not_fit_are_refused(any_sandbox):
    limits = Limits(disk_bytes=2**20)
    program = Program(source="", files={"x": b"1" * 1048577})
    with pytest.raises(ConfigError, match="1048577 bytes of files exceed disk_bytes=1048576"):
        await any_sandbox.run(program, limits=limits)


@pytest.mark.long
async def test_programs_of_different_limits_take_turns(any_sandbox):
    source = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
    for size in (3_000_000, 5_000_000, 3_000_000):
        limits = Limits(wall_s=120.0, disk_bytes=size)
        result = await any_sandbox.run(Program(source=source), limits=limits)
        assert int(result.stdout) == size


async def test_a_session_is_a_conversation(any_sandbox):
    source = "for line in __import__('sys').stdin: print(int(line) ** 2, flush=True)\nprint('end')"
    session = await any_sandbox.start(Program(source=source), limits=PATIENT)
    for number in (3, 12):
        await session.send(b"%d\n" % number)
        assert await session.receive_line() == b"%d" % number**2
    result = await session.finish()
    assert (result.stdout, result.exit_code) == (b"9\n144\nend\n", 0)
    assert await session.receive_line() == b"end"
    assert await session.receive_line() is None


async def test_a_session_that_does_not_answer_in_time_is_over(any_sandbox):
    program = Program(source="print('half', end='', flush=True)\nimport time; time.sleep(999)")
    session = await any_sandbox.start(program, limits=PATIENT)
    assert await session.receive_line(timeout_s=0.5) is None
    await session.send(b"too late")
    result = await session.finish()
    assert (result.ended, result.exit_code, result.stdout) == ("timeout", None, b"half")


async def test_a_session_whose_program_left_takes_input_and_gives_nothing(any_sandbox):
    session = await any_sandbox.start(Program(source="print('gone')"), limits=PATIENT)
    assert await session.receive_line() == b"gone"
    assert await session.receive_line() is None
    await session.send(b"x" * 1_000_000)
    assert (await session.finish()).exit_code == 0


async def test_a_session_can_be_killed(any_sandbox):
    session = await any_sandbox.start(
        Program(source="import time; time.sleep(999)"), limits=PATIENT
    )
    result = await session.kill()
    assert (result.ended, result.exit_code) == ("killed", None)


@pytest.mark.long
async def test_a_cancelled_program_gives_its_place_to_the_next(any_sandbox):
    sleeper = Program(source="import time; time.sleep(999)")
    tasks = [asyncio.create_task(any_sandbox.run(sleeper, limits=PATIENT)) for _ in range(9)]
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (await run(any_sandbox, "print('next')")).stdout == b"next\n"


async def test_a_closed_sandbox_says_so_and_ends_its_programs(any_sandbox):
    sandbox = open_sandbox(any_sandbox.name, allow_unsafe=True, warm=1)
    program = Program(source="import time; time.sleep(999)")
    session = await sandbox.start(program, limits=PATIENT)
    await sandbox.close()
    assert (await session.finish()).ended == "killed"
    with pytest.raises(SandboxError, match="is closed"):
        await run(sandbox, "")


@pytest.mark.long
async def test_many_at_once_do_not_mix(any_sandbox):
    results = await asyncio.gather(*(run(any_sandbox, f"print({i})") for i in range(24)))
    assert [int(result.stdout) for result in results] == list(range(24))


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


@pytest.mark.parametrize("name", ["wall_s", "cpu_s", "memory_bytes", "processes", "output_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"Limits\({name}={value}\) must be more than 0"):
        Limits(**{name: value})
