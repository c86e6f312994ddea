"""One program in one sandbox, from its job to its result.

The worker and this process exchange three things on the worker's pipes, before the program's own
input and output:

    worker -> "ready"    it has started, and may wait in the reserve
    job    -> worker     length and marshalled parts; see `job`
    worker -> "start"    the limits are set, and the next byte is the program's
"""

import asyncio
import marshal
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePosixPath

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.child import Child
from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.loop import on_sandbox_loop
from ludic_gym.sandbox.types import Ended, ExecResult, Limits, Program, Session
from ludic_gym.sandbox.weight import descendants, exceeds, is_idle

READY, START = b"ready\n", b"start\n"
SETUP_S = 60.0
LOOK_EVERY_S = 0.1
# Beyond its CPU limit, for a program that waits for input that never comes.
SPARE_IDLE_S = 2.0
MOST_IDLE_S = 1.0
SETTLE_S = 1.0
EXCERPT_BYTES = 400


def job(program: Program, limits: Limits) -> bytes:
    """The bytes of a job for a worker: twelve digits of length, then the parts, marshalled.

    limits: all but the wall clock and the output, which are enforced outside.
    Raises ConfigError for files outside the folder, or larger than `disk_bytes` together.
    """
    # Lone surrogates are no valid text. The interpreter reports them, as for any broken source.
    source = program.source.encode("utf-8", "surrogatepass")
    for name in program.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ConfigError(f"{name!r} is no relative name of a file in the working directory")
    size = len(source) + sum(map(len, program.files.values()))
    if size > limits.disk_bytes:
        raise ConfigError(f"{size} bytes of files exceed disk_bytes={limits.disk_bytes}")
    sizes = (limits.memory_bytes, limits.processes, limits.disk_bytes)
    restrictions = (math.ceil(limits.cpu_s), *sizes)
    parts = (source, program.arguments, program.interpreter, dict(program.files), restrictions)
    # marshal, because workers start fast without an import of json or pickle. Version 2 is read by
    # every Python. Reading marshalled data is unsafe, but this data only goes into the sandbox.
    body = marshal.dumps(parts, 2)
    return b"%012d" % len(body) + body


async def expect(child: Child, line: bytes, complaint: str, *, work: bytes = b"") -> None:
    """Send the work to a worker and wait for its line.

    Ends the worker and raises SandboxError with the complaint if another line, or none, comes
    within `SETUP_S`.
    """
    came = False
    try:
        async with asyncio.timeout(SETUP_S):
            await child.write(work)
            came = await child.line() == line
    except TimeoutError:
        complaint += f" within {SETUP_S:g} s"
    finally:
        # Also if the call is cancelled.
        if not came:
            child.kill()
            await child.ended()
    if not came:
        raise SandboxError(f"{complaint}; {excerpt(child)}")


def excerpt(child: Child) -> str:
    """The exit code of a worker and the end of its stderr."""
    stderr = bytes(child.stderr.data[-EXCERPT_BYTES:]).decode(errors="replace").strip()
    return f"exit code {child.exit_code}, stderr: {stderr or 'nothing'}"


class Running(Session):
    """A program in its sandbox, for callers on any event loop.

    child: a worker that is ready. backend, limits: those it was started with.
    at_end: called at every change after the end.
    Methods without a coroutine are for the sandboxes' loop only.
    """

    def __init__(self, child: Child, backend: Backend, limits: Limits) -> None:
        self._child = child
        self._backend = backend
        self._limits = limits
        self._began = time.monotonic()
        self._wall_s = 0.0
        self._ended: Ended | None = None
        self._callers = 0
        self._idle_s = 0.0
        self._alarms: list[asyncio.TimerHandle] = []
        # The worker's own lines come before the program's output.
        self._head = len(READY) + len(START)
        child.stdout.limit = self._head + limits.output_bytes
        child.stderr.limit = len(child.stderr.data) + limits.output_bytes
        child.watch = self.look
        self.at_end: Callable[[], None] = lambda: None

    async def begin(self, work: bytes) -> None:
        """Send the job. Raises SandboxError if the worker ends before the program begins."""
        complaint = f"the sandbox {self._backend.name!r} broke before the program began"
        group = self._child.group
        fits = group is None or group.bound(self._limits.memory_bytes)
        try:
            await expect(self._child, START, complaint, work=work)
        except SandboxError:
            # The job itself may need more than the limit.
            if not self._child.out_of_memory:
                raise
        if not fits:
            self.end("memory")
        self._began = self._examined = time.monotonic()
        loop = asyncio.get_running_loop()
        self._alarms = [loop.call_later(self._limits.wall_s, self.end, "timeout")]
        self._examine_later()
        # The program may have ended, or written too much, before the alarms were set.
        self.look()

    def _examine_later(self) -> None:
        """Examine the processes after a pause, if this process can see them."""
        if self._child.first:
            loop = asyncio.get_running_loop()
            # A step later than the timer: output that has come wakes its reader first.
            again = partial(loop.call_soon, self._examine)
            self._alarms[1:] = [loop.call_later(LOOK_EVERY_S, again)]

    def _examine(self) -> None:
        """End the program if it holds too much memory, or has been idle for too long."""
        if self._child.exit_code is not None:
            return
        family = list(descendants(self._child.first))
        group, limits = self._child.group, self._limits
        if group.exceeded() if group else exceeds(family, limits.memory_bytes):
            self.end("memory")
            return
        now = time.monotonic()
        # A program that no caller waits for may itself wait for its next input.
        if self._callers and is_idle(family):
            # No more than a second: this process may have been stopped in between.
            self._idle_s += min(now - self._examined, MOST_IDLE_S)
        self._examined = now
        if self._idle_s > limits.cpu_s + SPARE_IDLE_S:
            self.end("timeout")
            return
        self._examine_later()

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
        await on_sandbox_loop(self._sent(data))

    async def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """See Session."""
        return await on_sandbox_loop(self._line(timeout_s))

    async def finish(self, stdin: bytes = b"") -> ExecResult:
        """See Session. stdin: the last input."""
        return await on_sandbox_loop(self._finished(stdin))

    async def kill(self) -> ExecResult:
        """See Session."""
        return await on_sandbox_loop(self._killed())

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Count a caller that waits for the program; its idle time counts meanwhile."""
        self._callers += 1
        try:
            yield
        finally:
            self._callers -= 1

    async def _sent(self, data: bytes) -> None:
        """Write to its stdin, on the sandboxes' loop."""
        with self._awaited():
            await self._child.write(data)

    async def _line(self, timeout_s: float | None) -> bytes | None:
        """The next line, on the sandboxes' loop; the program ends if none comes in time."""
        loop = asyncio.get_running_loop()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, self.end, "timeout")
        try:
            with self._awaited():
                line = await self._child.line()
        finally:
            if alarm:
                alarm.cancel()
        return line and line[:-1]

    async def _finished(self, stdin: bytes) -> ExecResult:
        """The result after the last input, on the sandboxes' loop."""
        try:
            with self._awaited():
                await self._child.write(stdin)
                self._child.close_stdin()
                return await self._result()
        finally:
            # A program whose caller was cancelled must not run on.
            self.end("killed")

    async def _killed(self) -> ExecResult:
        """The result after a kill, on the sandboxes' loop."""
        # The keeper of a sandbox ends after the program; killed in between, it could not report
        # how the program ended, and a program out of time would pass for one that crashed.
        if not self._child.stdout.open:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await self._child.ended()
        self.end("killed")
        return await self._result()

    async def _result(self) -> ExecResult:
        """The result of the ended program. Raises SandboxError if the sandbox itself ended."""
        code = await self._child.ended()
        # The kernel may have killed any process of the group, also one that keeps the sandbox.
        if self._ended is None and self._child.out_of_memory:
            self._ended = "memory"
        if self._ended is None and self._backend.failed(code):
            name = self._backend.name
            raise SandboxError(
                f"the sandbox {name!r} broke while a program ran in it; {excerpt(self._child)}"
            )
        # Popen's -9 is a shell's 137.
        code = 128 - code if code < 0 else code
        stdout, stderr = self._child.stdout, self._child.stderr
        ended = self._ended or _how(code, bytes(stderr.data))
        if ended == "exited" and (stdout.cut or stderr.cut):
            ended = "output"
        return ExecResult(
            stdout=bytes(stdout.data[self._head :]),
            stderr=bytes(stderr.data),
            exit_code=None if self._ended else code,
            ended=ended,
            wall_s=self._wall_s,
            stdout_cut=stdout.cut,
            stderr_cut=stderr.cut,
        )

    async def gone(self) -> None:
        """Wait until its process has ended."""
        await self._child.ended()


def _how(code: int, stderr: bytes) -> Ended:
    """The reason for an end that was not caused from outside."""
    if code == 128 + signal.SIGXCPU:
        return "cpu"
    # A program that imitates the interpreter's message deceives only about its own end.
    last = stderr.rstrip().rpartition(b"\n")[2]
    if code == 1 and last.startswith(b"MemoryError"):
        return "memory"
    return "signal" if 128 < code < 128 + 65 else "exited"
