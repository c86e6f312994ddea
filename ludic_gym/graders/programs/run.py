"""Test runs: requests to the programs in sandboxes, and verdicts from their replies.

A runner (`inside`) is started in a sandbox and gets an opening with the program, to which it
replies "ready" or the reason why not. Then every request is a call, an input or a query, and every
reply is judged here, outside. Expected results never leave this process, so that a program cannot
read them:

    -> {"code": "def f(x): ...", "name": "f", ...}     <- ["ready", ""]
    -> [[3], {"dict": []}]                             <- ["value", 9, [null]]
    -> [["a"], {"dict": []}]                           <- ["raised", "TypeError", "..."]

The program shares its process with the runner, so every reply may be a forgery: its size, depth and
parts are checked before use. Tests that are programs themselves need two sandboxes: in one process
the solution could replace `assert` or the test's own functions. Their calls are passed from one to
the other here.
"""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from ludic_gym.errors import DataError, SandboxError
from ludic_gym.graders.programs.compare import (
    is_same,
    is_same_by_columns,
    is_same_set,
    is_same_table,
    is_same_text,
)
from ludic_gym.graders.programs.inside.plain import DEEPEST, Tree
from ludic_gym.graders.programs.types import (
    MESSAGE_LIMIT,
    PRINTED_LIMIT,
    AssertTests,
    CallTests,
    Outcome,
    ProgramTests,
    QueryTests,
    StdinTests,
    Verdict,
)
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Limits, Program, Sandbox, Session

INSIDE = Path(__file__).parent / "inside"
# Output of a runner in all, and of one reply. A runner that writes more is ended.
OUTPUT_BYTES = 32 * MEBIBYTE
REPLY_BYTES = 8 * MEBIBYTE
NO_REPLY = "the reply is not the runner's"
# Every level of a value takes three of JSON at most: {"dict": [[key, value]]}.
DEEPEST_REPLY = 3 * DEEPEST + 10
Runner = Literal["solution", "tester", "cases", "query"]


class Gone(Exception):
    """The program has ended, or its reply is not a runner's; with the test's outcome.

    outcome: "timeout" or "crashed". Internal: `run` turns it into a verdict.
    """

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Talk:
    """One runner in its sandbox.

    session: just started. The first line that comes is "started"; see `talk_to`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._result: ExecResult | None = None

    async def ask(self, request: object) -> list[Any]:
        """Send a request; the reply, a list that begins with a text. Raises Gone if none comes.

        request: any JSON value.
        """
        await self._session.send(json.dumps(request).encode() + b"\n")
        return await self.listen()

    async def listen(self) -> list[Any]:
        """The next reply. Raises Gone if there is none, or it is too large, too deep or no list."""
        line = await self._session.receive_line()
        if line is None:
            raise _gone(await self.end())
        try:
            reply = json.loads(line) if len(line) <= REPLY_BYTES else []
        except (ValueError, RecursionError):
            reply = []
        if isinstance(reply, list) and reply and isinstance(reply[0], str) and is_shallow(reply):
            return reply
        raise Gone("crashed", NO_REPLY)

    async def started(self) -> bool:
        """True once the runner is ready for its first request; False if it ended before."""
        with suppress(Gone):
            return await self.listen() == ["started"]
        return False

    async def end(self) -> ExecResult:
        """End the program; its result, the same at every call."""
        if self._result is None:
            self._result = await self._session.kill()
        return self._result

    async def printed(self) -> str:
        """End the program; the last `PRINTED_LIMIT` characters of its printed output."""
        text = (await self.end()).stderr.decode("utf-8", "replace")
        return text[-PRINTED_LIMIT:]


@asynccontextmanager
async def talk_to(sandbox: Sandbox, runner: Runner, limits: Limits) -> AsyncIterator[Talk]:
    """Start a runner, which is ended with the block.

    runner: "solution", "tester", "cases" or "query", a file of `inside`. limits: of the program;
    `output_bytes` is raised to `OUTPUT_BYTES`, since replies count as output.
    Raises SandboxError if it does not start. That is no fault of the tested program, which has not
    been sent yet.
    """
    program = Program(source=_files()[f"{_FOLDER}/{runner}.py"].decode(), files=_files())
    # Replies to all cases count as output of one program.
    limits = replace(limits, output_bytes=max(limits.output_bytes, OUTPUT_BYTES))
    talk = Talk(await sandbox.start(program, limits=limits))
    try:
        if not await talk.started():
            printed = await talk.printed()
            raise SandboxError(f"no runner started in the sandbox {sandbox.name!r}: {printed}")
        yield talk
    finally:
        await talk.end()


def is_shallow(reply: object) -> bool:
    """True if it can be printed, compared and encoded without a RecursionError.

    >>> is_shallow(["value", {"tuple": [1, [2, 3]]}])
    True
    >>> import json
    >>> is_shallow(json.loads("[" * 400 + "]" * 400))
    False
    """
    # Level by level, without recursion, which is what a deep reply must not cause.
    level = [reply]
    for _ in range(DEEPEST_REPLY):
        inner = [part for part in level if isinstance(part, list | dict)]
        level = [x for part in inner for x in (part if isinstance(part, list) else part.values())]
        if not level:
            return True
    return False


def _gone(result: ExecResult) -> Gone:
    """The error for a program that ended with that result."""
    if result.ended in ("timeout", "cpu"):
        what = "wall" if result.ended == "timeout" else "CPU"
        return Gone("timeout", f"out of {what} time")
    how = {"memory": "out of memory", "output": "wrote too much", "signal": "ended by a signal"}
    code = f"left with exit code {result.exit_code}"
    return Gone("crashed", how.get(result.ended, code)[:MESSAGE_LIMIT])


_FOLDER = "ludic_gym/graders/programs/inside"


@cache
def _files() -> Mapping[str, bytes]:
    """The files that a runner imports, as namespace packages, without `__init__.py`."""
    names = ("channel", "plain", "solution", "tester", "cases", "query")
    return {f"{_FOLDER}/{name}.py": (INSIDE / f"{name}.py").read_bytes() for name in names}


# (number of the case, reply) -> outcome and message.
Judge = Callable[[int, Sequence[Any]], tuple[Outcome, str]]
# The tests start before the solution and wait for it, so their limits are larger.
PATIENCE = 4
PAIR_DEADLINE_S = 600.0
NO_NAMES: Tree = {"dict": []}
_STATES: dict[str, Outcome] = {"syntax": "syntax", "error": "raised", "missing": "missing"}


class Tally:
    """Counts of tests, and the first failure.

    total: number of tests. index: of the current test, -1 before the first.
    """

    def __init__(self, total: int) -> None:
        self.index = -1
        self._verdict = Verdict(outcome="passed", passed=0, total=total)

    def note(self, outcome: Outcome, message: str = "") -> None:
        """Record the outcome of the current test.

        message: for a failure; only the first failure's is kept, in `MESSAGE_LIMIT` characters.
        """
        verdict = self._verdict
        if outcome == "passed":
            self._verdict = replace(verdict, passed=verdict.passed + 1)
        elif verdict.outcome == "passed":
            text = message[:MESSAGE_LIMIT]
            self._verdict = replace(verdict, outcome=outcome, failed=self.index, message=text)

    async def verdict(self, talk: Talk) -> Verdict:
        """The verdict, with the program's output. Ends the program."""
        return replace(self._verdict, printed=await talk.printed())


async def run(
    sandbox: Sandbox, code: str, tests: ProgramTests, limits: Limits, stop: bool
) -> Verdict:
    """The verdict on a program, whose tests have no reference.

    code, tests, limits, stop: as in `Grader.grade_async`; see `resolved` for a reference.
    Raises SandboxError, and DataError for tests that cannot be run.
    """
    match tests:
        case AssertTests():
            return await _run_asserts(sandbox, code, tests, limits, stop)
        case CallTests():
            calls = [[list(call), NO_NAMES] for call in tests.calls]
            async with talk_to(sandbox, "solution", limits) as talk:
                judge = partial(_judged_call, tests)
                return await _cases(talk, _opening(code, tests), calls, judge, stop)
        case StdinTests():
            opening = {"code": code, "case_s": tests.case_s}
            inputs = [stdin for stdin, _ in tests.cases]
            async with talk_to(sandbox, "cases", limits) as talk:
                return await _cases(talk, opening, inputs, partial(_judged_output, tests), stop)
        case QueryTests():
            async with talk_to(sandbox, "query", limits) as talk:
                judge = partial(_judged_rows, tests)
                return await _cases(talk, _database(tests), [code], judge, stop)


def _judged_call(tests: CallTests, index: int, reply: Sequence[Any]) -> tuple[Outcome, str]:
    """Outcome of a call: the result in the reply, or its exception, against the expected value."""
    if reply[0] == "raised":
        return "raised", f"{reply[1]}: {reply[2]}"
    if reply[0] != "value":
        return "wrong", f"gave {reply[-1]}"
    same = is_same(reply[1], tests.expected[index], atol=tests.atol, compared=tests.compared)
    return ("passed", "") if same else ("wrong", f"gave {str(reply[1])[:200]}")


def _judged_output(tests: StdinTests, index: int, reply: Sequence[Any]) -> tuple[Outcome, str]:
    """Outcome of an input: the exit code and stdout in the reply, against the expected output."""
    if reply[0] == "timeout":
        return "timeout", f"took longer than {tests.case_s:g} s"
    if reply[0] != "exited" or reply[2] != 0:
        return "raised", f"exit code {reply[-1]}"
    expected = tests.cases[index][1]
    same = is_same_text(str(reply[1]), expected, tests.comparator, tests.tolerance)
    return ("passed", "") if same else ("wrong", f"wrote {str(reply[1])[:200]!r}")


def _judged_rows(tests: QueryTests, index: int, reply: Sequence[Any]) -> tuple[Outcome, str]:
    """Outcome of a query. Raises DataError if the schema is at fault."""
    kind, content = reply[0], reply[-1]
    if kind == "broken":
        raise DataError(f"the database cannot be made: {content}")
    if kind in ("syntax", "raised"):
        return "syntax" if kind == "syntax" else "raised", str(content)
    if kind == "rows" and _is_same_rows(tests, content):
        return "passed", ""
    gave = f"{len(content)} rows" if isinstance(content, list) else str(content)
    return "wrong", f"gave {gave}"


def _is_same_rows(tests: QueryTests, rows: Any) -> bool:  # noqa: ANN401 (a forged reply)
    if tests.match == "rows":
        return is_same_table(rows, tests.rows, ordered=tests.ordered)
    if tests.match == "set":
        return is_same_set(rows, tests.rows)
    return is_same_by_columns(rows, tests.rows, ordered=tests.ordered)


def _database(tests: QueryTests) -> object:
    """The first request to the runner of a query. Raises DataError for a file that is gone."""
    if not tests.database:
        return tests.schema
    try:
        content = Path(tests.database).read_bytes()
    except OSError as error:
        raise DataError(f"{tests.database}: cannot be read ({error.strerror})") from error
    # A database in memory has no write-ahead log, which two bytes of the header would ask for.
    if content[18:20] == b"\x02\x02":
        content = content[:18] + b"\x01\x01" + content[20:]
    return {"database": base64.b64encode(content).decode()}


def _opening(code: str, tests: CallTests | AssertTests) -> dict[str, object]:
    """The first request to the runner of a function."""
    truth = isinstance(tests, CallTests) and tests.compared == "truth"
    return {"prelude": tests.prelude, "code": code, "name": tests.name, "truth": truth}


async def _cases(
    talk: Talk, opening: object, requests: Sequence[object], judge: Judge, stop: bool
) -> Verdict:
    """Open the program, then send one case after the other, up to a failure if `stop`."""
    tally = Tally(len(requests))
    try:
        if await _opened(talk, opening, tally):
            for index, request in enumerate(requests):
                tally.index = index
                outcome, message = judge(index, await talk.ask(request))
                tally.note(outcome, message)
                if outcome != "passed" and stop:
                    break
    except Gone as gone:
        tally.note(gone.outcome, str(gone))
    # A program may have written a reply in the runner's place, with too few parts.
    except IndexError:
        tally.note("crashed", NO_REPLY)
    return await tally.verdict(talk)


async def _opened(talk: Talk, opening: object, tally: Tally) -> bool:
    """Open the program; True if it is ready, else its failure is noted."""
    reply = await talk.ask(opening)
    ready: bool = reply[0] == "ready"
    if not ready:
        tally.note(_STATES.get(reply[0], "crashed"), str(reply[-1]))
    return ready


async def _run_asserts(
    sandbox: Sandbox, code: str, tests: AssertTests, limits: Limits, stop: bool
) -> Verdict:
    """The verdict of test programs, which run in a sandbox of their own."""
    async with _both(sandbox, limits) as (tester, solution):
        tally = Tally(len(tests.tests))
        try:
            # The tests do not start without a solution, whose errors are none of theirs.
            if await _opened(solution, _opening(code, tests), tally):
                await _relay(tester, solution, tests, tally, stop)
        except Gone as gone:
            tally.note(gone.outcome, str(gone))
        return await tally.verdict(solution)


async def _relay(
    tester: Talk, solution: Talk, tests: AssertTests, tally: Tally, stop: bool
) -> None:
    """Pass calls from the tests to the solution and results back, until all tests have run.

    Raises DataError if the tests are at fault, and Gone if either program ends.
    """
    tally.index = 0
    parts = ("prelude", "tests", "name", "in_place")
    reply = await tester.ask({part: getattr(tests, part) for part in parts})
    # The tester replies with a call or with the outcome of a test, until all tests have run.
    while tally.index < len(tests.tests):
        if reply[0] == "broken":
            raise DataError(f"the tests of {tests.name} cannot be run: {reply[1]}")
        if reply[0] == "call":
            reply = await tester.ask(_result(await solution.ask(reply[1:])))
            continue
        passed = reply[0] == "passed"
        tally.note("passed" if passed else "wrong", str(reply[-1]))
        if stop and not passed:
            return
        tally.index += 1
        reply = await tester.ask("on")


def _result(reply: Sequence[Any]) -> Sequence[Any]:
    """The reply to the tests for a call of the solution.

    A result that is no plain data becomes a RuntimeError in the test, which cannot receive it.
    """
    if reply[0] == "value" and len(reply) == 3 and isinstance(reply[2], list):
        return reply
    if reply[0] == "raised" and len(reply) == 3:
        return ["raised", str(reply[1]), str(reply[2])]
    return ["raised", "RuntimeError", f"the function gave {reply[-1]}"]


@asynccontextmanager
async def _both(sandbox: Sandbox, limits: Limits) -> AsyncIterator[tuple[Talk, Talk]]:
    """A tester and a solution. Raises SandboxError, also for a sandbox with one place only."""
    # The tests wait for the solution, whose limits must be reached first.
    patient = replace(limits, wall_s=PATIENCE * limits.wall_s, cpu_s=PATIENCE * limits.cpu_s)
    async with AsyncExitStack() as ends:
        # Pairs take their places one after the other. Otherwise each of several pairs could hold
        # one place and wait for ever for its second.
        async with _pairing:
            tester = await ends.enter_async_context(talk_to(sandbox, "tester", patient))
            coming = ends.enter_async_context(talk_to(sandbox, "solution", limits))
            try:
                async with asyncio.timeout(PAIR_DEADLINE_S):
                    solution = await coming
            except TimeoutError as error:
                raise SandboxError(
                    f"the sandbox {sandbox.name!r} gave no second place in {PAIR_DEADLINE_S:g} s; "
                    "tests beside a solution need concurrency=2 or more"
                ) from error
        yield tester, solution


_pairing = asyncio.Lock()


def _forget() -> None:
    # A fork has a loop of its own, and none of the pairs.
    global _pairing
    _pairing = asyncio.Lock()


os.register_at_fork(after_in_child=_forget)


async def resolved(
    sandbox: Sandbox, tests: CallTests | QueryTests, limits: Limits
) -> tuple[CallTests | QueryTests, float]:
    """The tests with the results of their reference, without it, and its seconds.

    A call for which the reference raises is left out of the tests. Seconds of wall time, its start
    included. Raises SandboxError, and DataError for a reference without any result.
    """
    if isinstance(tests, CallTests):
        return await _with_values(sandbox, tests, limits)
    async with talk_to(sandbox, "query", limits) as talk:
        try:
            await talk.ask(_database(tests))
            reply = await talk.ask(tests.reference)
        except Gone as gone:
            reply = [str(gone)]
        seconds = (await talk.end()).wall_s
    if reply[0] != "rows":
        raise DataError(f"the reference query {tests.reference!r} gives no rows: {reply}")
    return replace(tests, rows=tuple(reply[1]), reference=""), seconds


async def _with_values(
    sandbox: Sandbox, tests: CallTests, limits: Limits
) -> tuple[CallTests, float]:
    """The calls for which the reference returns plain data, with these results, and its seconds."""
    kept: list[tuple[tuple[Tree, ...], Tree]] = []
    async with talk_to(sandbox, "solution", limits) as talk:
        try:
            why = str((await talk.ask(_opening(tests.reference, tests)))[-1])
            for call in tests.calls if not why else ():
                reply = await talk.ask([list(call), NO_NAMES])
                kept += [(call, reply[1])] if reply[0] == "value" else []
        except Gone as gone:
            raise DataError(f"the reference of {tests.name}: {gone}") from gone
        seconds = (await talk.end()).wall_s
    if not kept:
        raise DataError(f"the reference of {tests.name} gives no value ({why or 'for any call'})")
    calls, expected = zip(*kept, strict=True)
    return replace(tests, calls=calls, expected=expected, reference=""), seconds
