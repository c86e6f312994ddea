"""Conversation with a program in a sandbox: a line of JSON out, a line of JSON in.

The program shares its process with the runner, so every reply may be a forgery. Its size, depth
and parts are checked before use. A forged result gains nothing over a returned one.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ludic_gym.errors import SandboxError
from ludic_gym.graders.programs.inside.plain import DEEPEST
from ludic_gym.graders.programs.types import MESSAGE_LIMIT, PRINTED_LIMIT, Outcome
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
