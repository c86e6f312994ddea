"""Test runs: requests to the programs in sandboxes, and verdicts from their replies.

A `runner` is started in a sandbox and gets an opening with the program, to which it
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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ludic_gym.errors import DataError, SandboxError
from ludic_gym.graders.programs.compare import (
    is_same,
    is_same_by_columns,
    is_same_set,
    is_same_table,
    is_same_text,
)
from ludic_gym.graders.programs.plain import DEEPEST, Tree, exact_ints
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

# Output of a runner in all, and of one reply. A runner that writes more is ended.
OUTPUT_BYTES = 32 * MEBIBYTE
REPLY_BYTES = 8 * MEBIBYTE
NO_REPLY = "the reply is not the runner's"
# Every level of a value takes three of JSON at most: {"dict": [[key, value]]}.
DEEPEST_REPLY = 3 * DEEPEST + 10
# (number of the case, reply) -> outcome and message.
Judge = Callable[[int, Sequence[Any]], tuple[Outcome, str]]
# The tests start before the solution and wait for it, so their limits are larger.
PATIENCE = 4
PAIR_DEADLINE_S = 600.0
NO_NAMES: Tree = {"dict": []}
_STATES: dict[str, Outcome] = {"syntax": "syntax", "error": "raised", "missing": "missing"}
_pairing = asyncio.Lock()


class RunnerEnded(Exception):
    """The program has ended, or its reply is not a runner's; `run` turns it into a verdict.

    outcome: "timeout" or "crashed".
    """

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Runner:
    """One runner in its sandbox.

    session: just started. The first line that comes is "started"; see `open_runner`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._result: ExecResult | None = None

    async def ask(self, request: object) -> list[Any]:
        """Send a request, any JSON value; the reply, a list that begins with a text.

        Raises RunnerEnded if none comes.
        """
        await self._session.send(json.dumps(request).encode() + b"\n")
        return await self.listen()

    async def listen(self) -> list[Any]:
        """The next reply. Raises RunnerEnded for none, or one too large, too deep or no list."""
        line = await self._session.receive_line()
        if line is None:
            raise await self._ended()
        try:
            reply = json.loads(line) if len(line) <= REPLY_BYTES else []
        except (ValueError, RecursionError):
            reply = []
        if isinstance(reply, list) and reply and isinstance(reply[0], str) and is_shallow(reply):
            return reply
        raise RunnerEnded("crashed", NO_REPLY)

    async def _ended(self) -> RunnerEnded:
        """The error for a program that has ended."""
        result = await self.end()
        if result.ended in ("timeout", "cpu"):
            what = "wall" if result.ended == "timeout" else "CPU"
            return RunnerEnded("timeout", f"out of {what} time")
        how = {"memory": "out of memory", "output": "wrote too much", "signal": "ended by a signal"}
        code = f"left with exit code {result.exit_code}"
        return RunnerEnded("crashed", how.get(result.ended, code)[:MESSAGE_LIMIT])

    async def end(self) -> ExecResult:
        """End the program; its result, the same at every call."""
        if self._result is None:
            self._result = await self._session.kill()
        return self._result

    async def printed(self) -> str:
        """End the program; the last `PRINTED_LIMIT` characters of its printed output."""
        text = (await self.end()).stderr.decode("utf-8", "replace")
        return text[-PRINTED_LIMIT:]


@cache
def _runner_program(name: str) -> Program:
    folder = Path(__file__).parent
    plain = folder / "plain.py"
    # Imported as from a namespace package, without `__init__.py`.
    files = {f"ludic_gym/graders/programs/{plain.name}": plain.read_bytes()}
    source = (folder / "runner.py").read_text(encoding="utf-8")
    return Program(source=source, arguments=(name,), files=files)


@asynccontextmanager
async def open_runner(sandbox: Sandbox, name: str, limits: Limits) -> AsyncIterator[Runner]:
    """Start a runner, which is ended with the block.

    name: a key of `runner.RUNNERS`. limits: of the program; `output_bytes` is raised to
    `OUTPUT_BYTES`, since replies to all cases count as output.
    Raises SandboxError if it does not start. That is no fault of the tested program, which has not
    been sent yet.
    """
    limits = replace(limits, output_bytes=max(limits.output_bytes, OUTPUT_BYTES))
    runner = Runner(await sandbox.start(_runner_program(name), limits=limits))
    try:
        started = False
        with suppress(RunnerEnded):
            started = await runner.listen() == ["started"]
        if not started:
            printed = await runner.printed()
            raise SandboxError(f"no runner started in the sandbox {sandbox.name!r}: {printed}")
        yield runner
    finally:
        await runner.end()


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

    async def verdict(self, runner: Runner) -> Verdict:
        """The verdict, with the program's output. Ends the program."""
        return replace(self._verdict, printed=await runner.printed())


async def run(
    sandbox: Sandbox, code: str, tests: ProgramTests, limits: Limits, stop: bool
) -> Verdict:
    """The verdict on a program, whose tests have no reference.

    code, tests, limits, stop: as in `Grader.grade_async`; see `resolve_reference` for a reference.
    Raises SandboxError, and DataError for tests that cannot be run.
    """
    match tests:
        case AssertTests():
            return await _run_asserts(sandbox, code, tests, limits, stop)
        case CallTests():
            calls = [[exact_ints(call), NO_NAMES] for call in tests.calls]
            async with open_runner(sandbox, "solution", limits) as runner:
                judge = partial(_judged_call, tests)
                return await _cases(runner, _opening(code, tests), calls, judge, stop)
        case StdinTests():
            opening = {"code": code, "case_s": tests.case_s}
            inputs = [stdin for stdin, _ in tests.cases]
            async with open_runner(sandbox, "cases", limits) as runner:
                return await _cases(runner, opening, inputs, partial(_judged_output, tests), stop)
        case QueryTests():
            async with open_runner(sandbox, "query", limits) as runner:
                judge = partial(_judged_rows, tests)
                return await _cases(runner, _database(tests), [code], judge, stop)


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
    if kind == "rows":
        if tests.match == "rows":
            same = is_same_table(content, tests.rows, ordered=tests.ordered)
        elif tests.match == "set":
            same = is_same_set(content, tests.rows)
        else:
            same = is_same_by_columns(content, tests.rows, ordered=tests.ordered)
        if same:
            return "passed", ""
    gave = f"{len(content)} rows" if isinstance(content, list) else str(content)
    return "wrong", f"gave {gave}"


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
    runner: Runner, opening: object, requests: Sequence[object], judge: Judge, stop: bool
) -> Verdict:
    """Open the program, then send one case after the other, up to a failure if `stop`."""
    tally = Tally(len(requests))
    try:
        if await _opened(runner, opening, tally):
            for index, request in enumerate(requests):
                tally.index = index
                outcome, message = judge(index, await runner.ask(request))
                tally.note(outcome, message)
                if outcome != "passed" and stop:
                    break
    except RunnerEnded as ended:
        tally.note(ended.outcome, str(ended))
    # A program may have written a reply in the runner's place, with too few parts.
    except IndexError:
        tally.note("crashed", NO_REPLY)
    return await tally.verdict(runner)


async def _opened(runner: Runner, opening: object, tally: Tally) -> bool:
    """Open the program; True if it is ready, else its failure is noted."""
    reply = await runner.ask(opening)
    ready: bool = reply[0] == "ready"
    if not ready:
        tally.note(_STATES.get(reply[0], "crashed"), str(reply[-1]))
    return ready


async def _run_asserts(
    sandbox: Sandbox, code: str, tests: AssertTests, limits: Limits, stop: bool
) -> Verdict:
    """The verdict of test programs, which run in a sandbox of their own.

    Their calls are passed to the solution, and its results back. Raises DataError if the tests are
    at fault.
    """
    parts = ("prelude", "tests", "name", "in_place")
    async with _both(sandbox, limits) as (tester, solution):
        tally = Tally(len(tests.tests))
        try:
            # The tests do not start without a solution, whose errors are none of theirs.
            if not await _opened(solution, _opening(code, tests), tally):
                return await tally.verdict(solution)
            tally.index = 0
            reply = await tester.ask({part: getattr(tests, part) for part in parts})
            # The tester replies with a call or with the outcome of a test, until all have run.
            while tally.index < len(tests.tests):
                if reply[0] == "broken":
                    raise DataError(f"the tests of {tests.name} cannot be run: {reply[1]}")
                if reply[0] == "call":
                    reply = await tester.ask(_result(await solution.ask(reply[1:])))
                    continue
                passed = reply[0] == "passed"
                tally.note("passed" if passed else "wrong", str(reply[-1]))
                if stop and not passed:
                    break
                tally.index += 1
                reply = await tester.ask("on")
        except RunnerEnded as ended:
            tally.note(ended.outcome, str(ended))
        return await tally.verdict(solution)


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
async def _both(sandbox: Sandbox, limits: Limits) -> AsyncIterator[tuple[Runner, Runner]]:
    """A tester and a solution. Raises SandboxError, also for a sandbox with one place only."""
    # The tests wait for the solution, whose limits must be reached first.
    patient = replace(limits, wall_s=PATIENCE * limits.wall_s, cpu_s=PATIENCE * limits.cpu_s)
    async with AsyncExitStack() as ends:
        # Pairs take their places one after the other. Otherwise each of several pairs could hold
        # one place and wait for ever for its second.
        async with _pairing:
            tester = await ends.enter_async_context(open_runner(sandbox, "tester", patient))
            coming = ends.enter_async_context(open_runner(sandbox, "solution", limits))
            try:
                async with asyncio.timeout(PAIR_DEADLINE_S):
                    solution = await coming
            except TimeoutError as error:
                raise SandboxError(
                    f"the sandbox {sandbox.name!r} gave no second place in {PAIR_DEADLINE_S:g} s; "
                    "tests beside a solution need concurrency=2 or more"
                ) from error
        yield tester, solution


def _forget() -> None:
    # A fork has a loop of its own, and none of the pairs.
    global _pairing
    _pairing = asyncio.Lock()


os.register_at_fork(after_in_child=_forget)


async def resolve_reference(
    sandbox: Sandbox, tests: CallTests | QueryTests, limits: Limits
) -> tuple[CallTests | QueryTests, float]:
    """The tests with the results of their reference, without it, and its seconds.

    A call for which the reference raises is left out of the tests. Seconds of wall time, its start
    included. Raises SandboxError, and DataError for a reference without any result.
    """
    if isinstance(tests, CallTests):
        return await _with_values(sandbox, tests, limits)
    async with open_runner(sandbox, "query", limits) as runner:
        try:
            await runner.ask(_database(tests))
            reply = await runner.ask(tests.reference)
        except RunnerEnded as ended:
            reply = [str(ended)]
        seconds = (await runner.end()).wall_s
    if reply[0] != "rows":
        raise DataError(f"the reference query {tests.reference!r} gives no rows: {reply}")
    return replace(tests, rows=tuple(reply[1]), reference=""), seconds


async def _with_values(
    sandbox: Sandbox, tests: CallTests, limits: Limits
) -> tuple[CallTests, float]:
    """The calls for which the reference returns plain data, with these results, and its seconds."""
    pairs: list[tuple[tuple[Tree, ...], Tree]] = []
    async with open_runner(sandbox, "solution", limits) as runner:
        try:
            why = str((await runner.ask(_opening(tests.reference, tests)))[-1])
            for call in tests.calls if not why else ():
                reply = await runner.ask([exact_ints(call), NO_NAMES])
                pairs += [(call, reply[1])] if reply[0] == "value" else []
        except RunnerEnded as ended:
            raise DataError(f"the reference of {tests.name}: {ended}") from ended
        seconds = (await runner.end()).wall_s
    if not pairs:
        raise DataError(f"the reference of {tests.name} gives no value ({why or 'for any call'})")
    calls, expected = zip(*pairs, strict=True)
    return replace(tests, calls=calls, expected=expected, reference=""), seconds
