"""One program in one sandbox, from its job to its result."""

from __future__ import annotations

import asyncio
import marshal
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.child import Child
from ludic_gym.sandbox.launch import CPU_CODE, Backend, shell_code
from ludic_gym.sandbox.loop import on_sandbox_loop
from ludic_gym.sandbox.types import Ended, ExecResult, Limits, Program, Session
from ludic_gym.sandbox.weight import exceeds

READY, START = b"ready\n", b"start\n"
SETUP_S = 60.0
WEIGH_EVERY_S = 0.1
SETTLE_S = 1.0
EXCERPT_BYTES = 400


def job(program: Program, files: Mapping[str, bytes], limits: Limits) -> bytes:
    """The bytes of a job for a worker. Raises ConfigError for files outside the folder.

    Twelve digits of length, then the parts, marshalled.
    """
    # Lone surrogates are no valid text. The interpreter reports them, as for any broken source.
    source = program.source.encode("utf-8", "surrogatepass")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ConfigError(f"{name!r} is no relative name of a file in the working directory")
    size = len(source) + sum(map(len, files.values()))
    if size > limits.disk_bytes:
        raise ConfigError(f"{size} bytes of files exceed disk_bytes={limits.disk_bytes}")
    restrictions = (
        math.ceil(limits.cpu_s),
        limits.memory_bytes,
        limits.processes,
        limits.disk_bytes,
    )
    parts = (source, program.arguments, program.interpreter, dict(files), restrictions)
    # marshal, because workers start fast without an import of json or pickle. Version 2 is read by
    # every Python. Reading marshalled data is unsafe, but this data only goes into the sandbox.
    body = marshal.dumps(parts, 2)
    return b"%012d" % len(body) + body


class Running:
    """A program in its sandbox. Used on the sandboxes' loop alone."""

    def __init__(self, child: Child, backend: Backend, limits: Limits) -> None:
        self._child = child
        self._backend = backend
        self._limits = limits
        self._began = time.monotonic()
        self._wall_s = 0.0
        self._ended: Ended | None = None
        self._alarms: list[asyncio.TimerHandle] = []
        # The worker's own lines come before the program's output.
        self._head = self._taken = len(READY) + len(START)
        child.stdout.limit = self._head + limits.output_bytes
        child.stderr.limit = len(child.stderr.data) + limits.output_bytes
        child.watch = self.look
        self.at_end: Callable[[], None] = lambda: None

    async def begin(self, work: bytes) -> bool:
        """Send the job; False if the worker ended before the program began."""
        try:
            began = await asyncio.wait_for(self._hand_over(work), SETUP_S)
        except TimeoutError:
            began = False
        if not began:
            self._child.kill()
            await self._child.ended()
            return False
        self._began = time.monotonic()
        loop = asyncio.get_running_loop()
        self._alarms = [loop.call_later(self._limits.wall_s, self.end, "timeout")]
        self._weigh_later()
        # The program may have ended, or written too much, before the alarms were set.
        self.look()
        return True

    def _weigh_later(self) -> None:
        if self._child.weighed:
            loop = asyncio.get_running_loop()
            self._alarms[1:] = [loop.call_later(WEIGH_EVERY_S, self._weigh)]

    def _weigh(self) -> None:
        if exceeds(self._child.pid, self._limits.memory_bytes):
            self.end("memory")
        else:
            self._weigh_later()

    async def _hand_over(self, work: bytes) -> bool:
        await self._child.write(work)
        return await self._child.line(len(READY)) == START

    def look(self) -> None:
        """React to a change of the process: output beyond its limit, or the end."""
        if self._child.exit_code is None:
            if self._child.stdout.cut or self._child.stderr.cut:
                self.end("output")
            return
        self._wall_s = self._wall_s or time.monotonic() - self._began
        for alarm in self._alarms:
            alarm.cancel()
        self.at_end()

    def end(self, why: Ended) -> None:
        """Kill it, for that reason unless it already ends for another."""
        if self._child.exit_code is None:
            self._ended = self._ended or why
            self._child.kill()

    async def send(self, data: bytes) -> None:
        """See Session."""
        await self._child.write(data)

    async def receive_line(self, timeout_s: float | None) -> bytes | None:
        """See Session."""
        loop = asyncio.get_running_loop()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, self.end, "timeout")
        try:
            line = await self._child.line(self._taken)
        finally:
            if alarm:
                alarm.cancel()
        if line is None:
            return None
        self._taken += len(line)
        return line[:-1]

    async def result(self) -> ExecResult:
        """Its result, once it has ended. Raises SandboxError if the sandbox broke."""
        code = await self._child.ended()
        if self._ended is None and self._backend.failed(code):
            raise SandboxError(self.complaint("broke while a program ran in it"))
        stdout, stderr = self._child.stdout, self._child.stderr
        written, complained = bytes(stdout.data[self._head :]), bytes(stderr.data)
        ended = self._ended or _how(shell_code(code), complained)
        if ended == "exited" and (stdout.cut or stderr.cut):
            ended = "output"
        return ExecResult(
            stdout=written,
            stderr=complained,
            exit_code=None if self._ended else shell_code(code),
            ended=ended,
            wall_s=self._wall_s,
            stdout_cut=stdout.cut,
            stderr_cut=stderr.cut,
        )

    def complaint(self, what: str) -> str:
        """A sentence about the sandbox, with the end of its stderr."""
        return complaint(self._backend, self._child, what)

    async def settle(self) -> None:
        """Give a program that has closed its output a moment to end by itself."""
        # The keeper of a sandbox ends after the program; killed in between, it could not report
        # how the program ended, and a program out of time would pass for one that crashed.
        if not self._child.stdout.open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._child.ended(), SETTLE_S)

    async def gone(self) -> None:
        """Wait until its process has ended."""
        await self._child.ended()

    def finish_input(self) -> None:
        """Close the program's input."""
        self._child.close_stdin()


def complaint(backend: Backend, child: Child, what: str) -> str:
    """A sentence about a sandbox that failed, with its exit code and the end of its stderr."""
    stderr = bytes(child.stderr.data[-EXCERPT_BYTES:]).decode(errors="replace").strip() or "nothing"
    return f"the sandbox {backend.name!r} {what}; exit code {child.exit_code}, stderr: {stderr}"


def _how(code: int, stderr: bytes) -> Ended:
    if code == CPU_CODE:
        return "cpu"
    last = stderr.rstrip().rpartition(b"\n")[2]
    if code == 1 and last.startswith(b"MemoryError"):
        return "memory"
    return "signal" if 128 < code < 128 + 65 else "exited"


async def finished(running: Running, stdin: bytes = b"") -> ExecResult:
    """Its result after this last input; the program is killed if the call is cancelled."""
    try:
        await running.send(stdin)
        running.finish_input()
        return await running.result()
    finally:
        running.end("killed")


async def killed(running: Running) -> ExecResult:
    """Its result, now."""
    await running.settle()
    running.end("killed")
    return await running.result()


class BridgedSession(Session):
    """A Session for callers on any event loop."""

    def __init__(self, running: Running) -> None:
        self._running = running

    async def send(self, data: bytes) -> None:
        """See Session."""
        await on_sandbox_loop(self._running.send(data))

    async def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """See Session."""
        return await on_sandbox_loop(self._running.receive_line(timeout_s))

    async def finish(self) -> ExecResult:
        """See Session."""
        return await on_sandbox_loop(finished(self._running))

    async def kill(self) -> ExecResult:
        """See Session."""
        return await on_sandbox_loop(killed(self._running))
