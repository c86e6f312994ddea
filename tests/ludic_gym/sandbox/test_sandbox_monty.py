import asyncio
import os

import pytest
import pytest_asyncio

pytest.importorskip("pydantic_monty", reason="monty needs pydantic-monty, of the extra 'tools'")

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program

LIMITS = Limits(wall_s=60.0, cpu_s=1.0, memory_bytes=64 * MEBIBYTE, output_bytes=10_000)


@pytest_asyncio.fixture
async def monty():
    sandbox = open_sandbox("monty")
    yield sandbox
    await sandbox.close()


async def run(sandbox, source, limits=LIMITS):
    return await sandbox.run(Program(source=source), limits=limits)


@pytest.mark.parametrize(
    ("source", "stdout", "stderr", "code", "ended"),
    [
        ("6 * 7", b"42\n", b"", 0, "exited"),
        ("print(1)\nx = 2", b"1\n", b"", 0, "exited"),
        ("print('a')\n[1, 'b']", b"a\n[1, 'b']\n", b"", 0, "exited"),
        ("import sys\nprint(1, file=sys.stderr)", b"", b"1\n", 0, "exited"),
        ("1 / 0", b"", b"ZeroDivisionError: division by zero\n", 1, "exited"),
        ("raise TimeoutError('mine')", b"", b"TimeoutError: mine\n", 1, "exited"),
        ("", b"", b"", 0, "exited"),
        ("'é✓'", "'é✓'\n".encode(), b"", 0, "exited"),
    ],
)
async def test_a_small_program_prints_and_its_last_value_is_shown(
    monty, source, stdout, stderr, code, ended
):
    result = await run(monty, source)
    assert (result.stdout, result.stderr) == (stdout, stderr)
    assert (result.exit_code, result.ended) == (code, ended)


@pytest.mark.parametrize(
    ("source", "ended", "code"),
    [
        ("while True: pass", "cpu", None),
        ("9 ** 9 ** 9", "memory", 1),
        ("x = 'a' * 10 ** 9", "memory", 1),
        ("while True: print('x' * 100)", "output", None),
    ],
)
async def test_limits_hold(monty, source, ended, code):
    result = await run(monty, source)
    assert (result.ended, result.exit_code) == (ended, code)
    assert len(result.stdout) <= 10_000
    assert (await run(monty, "1 + 1")).stdout == b"2\n"


async def test_sleep_ends_with_the_clock(monty):
    result = await run(monty, "import time\ntime.sleep(999)", Limits(wall_s=0.2))
    assert (result.ended, result.exit_code) == ("timeout", None)


@pytest.mark.parametrize(
    "source",
    [
        "open('/etc/passwd').read()",
        "import os\nos.environ",
        "import socket",
        "import subprocess",
        "__import__('os').system('id')",
        "\ud800",
        "def f(:",
        "def f(): f()\nf()",
    ],
)
async def test_what_is_not_there_is_the_programs_failure(monty, source):
    result = await run(monty, source)
    assert result.exit_code == 1
    assert result.stderr
    assert b"root:" not in result.stdout


async def test_nothing_is_left_for_the_next_program(monty):
    await run(monty, "x = 1")
    assert b"NameError" in (await run(monty, "x")).stderr


async def test_many_run_at_once(monty):
    results = await asyncio.gather(*(run(monty, f"{i} * 2") for i in range(50)))
    assert [int(result.stdout) for result in results] == list(range(0, 100, 2))


@pytest.mark.parametrize(
    ("program", "given", "what"),
    [
        (Program(source=""), {"stdin": b"x"}, "stdin"),
        (Program(source="", files={"a": b""}), {}, "files"),
        (Program(source="", arguments=("x",)), {}, "arguments"),
        (Program(source="", interpreter=("sh",)), {}, "interpreter"),
    ],
)
async def test_what_it_cannot_do_is_refused(monty, program, given, what):
    with pytest.raises(ConfigError, match=f"monty has no {what}"):
        await monty.run(program, **given)


async def test_it_has_no_sessions(monty):
    with pytest.raises(ConfigError, match="monty has no sessions"):
        await monty.start(Program(source=""))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_is_told_that_its_parents_interpreters_are_not_for_it():
    sandbox = open_sandbox("monty")
    assert run_blocking(run(sandbox, "1")).stdout == b"1\n"
    child = os.fork()
    if not child:
        try:
            run_blocking(run(open_sandbox("monty"), "2"))
        except SandboxError as error:
            os._exit(0 if "cannot be used in a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run_blocking(run(sandbox, "3")).stdout == b"3\n"
    run_blocking(sandbox.close())
