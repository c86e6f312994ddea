"""One program in one sandbox: its process and pipes, from its job to its result.

The worker and this process exchange three things on the worker's pipes, before the program's own
input and output:

    worker -> "ready"    it has started, and may wait in the reserve
    job    -> worker     length and marshalled parts; see `job`
    worker -> "start"    the limits are set, and the next byte is the program's

asyncio's own subprocesses need a thread for each process to see its end, and their `communicate`
reads output without a limit.
"""

import asyncio
import marshal
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePosixPath

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.launch import Backend, Launch, start_process
from ludic_gym.sandbox.loop import on_loop
from ludic_gym.sandbox.memory import descendants, exceeds, is_idle, new_group
from ludic_gym.sandbox.types import Ended, ExecResult, Limits, Program, Session

CHUNK_BYTES = 2**16
REMOVE_EVERY_S = 0.05
REMOVALS = 200
READY, START = b"ready\n", b"start\n"
SETUP_S = 60.0
LOOK_EVERY_S = 0.1
# Beyond its CPU limit, for a program that waits for input that never comes.
SPARE_IDLE_S = 2.0
MOST_IDLE_S = 1.0
SETTLE_S = 1.0
EXCERPT_BYTES = 400


class Tap:
    """Bytes that were read from a pipe, up to a limit.

    descriptor: the pipe's end for reading. data: the first `limit` bytes.
    cut: True if there were more. open: False after the end of the pipe.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.data = bytearray()
        self.limit = CHUNK_BYTES
        self.cut = False
        self.open = True

    def read(self) -> bool:
        """Read available bytes; False if there are none for now, or none any more."""
        try:
            # Not the file object: its buffer would hold bytes that the loop does not see.
            part = os.read(self.descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.open = bool(part)
        room = self.limit - len(self.data)
        self.data += part[:room]
        self.cut = self.cut or len(part) > room
        return self.open and not self.cut


class Child:
    """A process and its three pipes. Made and used on one event loop only.

    exit_code: as in Popen, None while it runs.
    pid: of the process from which those of the program descend.
    group: of its memory, None where there can be none. out_of_memory: True if it ended beyond the
    group's limit.
    stdout, stderr: output so far. Every change calls `watch` and wakes all waiting coroutines.
    Raises SandboxError if the command of the launch cannot be started.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self.group = new_group()
        self.out_of_memory = False
        try:
            self._process = process = start_process(launch, self.group)
        except BaseException:
            self._remove()
            raise
        self.pid = process.pid
        self._pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe]
        stdin, stdout, stderr = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(stdin, False)
        self._stdin: int | None = stdin
        self.stdout, self.stderr = Tap(stdout), Tap(stderr)
        self._taken = 0
        self.exit_code: int | None = None
        self.watch: Callable[[], None] = lambda: None
        for tap in (self.stdout, self.stderr):
            self._loop.add_reader(tap.descriptor, self._readable, tap)
        if sys.platform == "linux":
            # A pidfd becomes readable at the end. SIGCHLD would need the main thread, which runs
            # the caller's code.
            handle = os.pidfd_open(process.pid)
            self._loop.add_reader(handle, self._ended, handle)
        else:
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        _CHILDREN.add(self)

    def _readable(self, tap: Tap) -> None:
        """Take the new output of a pipe, and stop listening at its end or its limit."""
        tap.read()
        if tap.cut or not tap.open:
            # A pipe at its end stays readable, and would keep the loop busy.
            self._loop.remove_reader(tap.descriptor)
            # The program may have ended; its group may be gone before the keeper ends.
            self._look_at_memory()
        self._wake()

    def _look_at_memory(self) -> None:
        self.out_of_memory |= self.group is not None and self.group.exceeded()

    def _wait_in_thread(self) -> None:
        self._process.wait()
        self._loop.call_soon_threadsafe(self._ended, None)

    def _ended(self, handle: int | None) -> None:
        """Read the rest of the output, free the process's id, and clean up."""
        if handle is not None:
            self._loop.remove_reader(handle)
            os.close(handle)
        # Kill the rest of its session before `wait` frees the id for another process.
        self.kill()
        code = self._process.wait()
        self.close_stdin()
        for tap in (self.stdout, self.stderr):
            self._loop.remove_reader(tap.descriptor)
            while tap.open and not tap.cut and tap.read():
                pass
        for pipe in self._pipes:
            pipe.close()
        self._launch.end()
        self._look_at_memory()
        self._remove()
        self.exit_code = code
        self._wake()

    def _remove(self, attempts: int = REMOVALS) -> None:
        """Remove the group, which is refused until its last process has ended."""
        if self.group and attempts and not self.group.removed():
            self._loop.call_later(REMOVE_EVERY_S, self._remove, attempts - 1)

    def _wake(self) -> None:
        """Report a change to `watch` and to all waiting coroutines."""
        self.watch()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            # A cancelled waiter is still in the list.
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Wait for the next change: output, a writable stdin, or the end."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        await future

    async def ended(self) -> int:
        """Wait for the end; the exit code, after all of its output has been read."""
        while self.exit_code is None:
            await self.changed()
        return self.exit_code

    async def line(self) -> bytes | None:
        """The next line of its stdout, with its line break; None if none comes.

        None is final: the process has ended, closed its stdout, or exceeded its output limit.
        """
        seen = start = self._taken
        while (end := self.stdout.data.find(b"\n", seen)) < 0:
            if self.exit_code is not None or self.stdout.cut or not self.stdout.open:
                return None
            # Searching from the start again would take quadratic time on a long line.
            seen = len(self.stdout.data)
            await self.changed()
        self._taken = end + 1
        return bytes(self.stdout.data[start : end + 1])

    async def write(self, data: bytes) -> None:
        """Write to its stdin; return early if it has closed its stdin.

        Returns when the pipe has taken all of the data, of which the process may not have read any.
        """
        rest = memoryview(data)
        while rest and self._stdin is not None:
            try:
                rest = rest[os.write(self._stdin, rest[: 16 * CHUNK_BYTES]) :]
            except BlockingIOError:
                # Until the pipe has room, or for any other change.
                self._loop.add_writer(descriptor := self._stdin, self._wake)
                try:
                    await self.changed()
                finally:
                    if self._stdin is not None:
                        self._loop.remove_writer(descriptor)
            except BrokenPipeError:
                self.close_stdin()

    def close_stdin(self) -> None:
        """Close its stdin, so that it reads the end of its input."""
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
            self._pipes[0].close()

    def kill(self) -> None:
        """Kill it and the processes of its session; no effect after its end."""
        # After `wait`, the id may belong to another process.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def release(self) -> None:
        """Drop it in a fork, where it is not a child process."""
        for pipe in self._pipes:
            pipe.close()
        # Else Popen would wait for it when it is collected, and warn.
        self._process.returncode = 0


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()


def _release_all() -> None:
    # A program reads the end of its input only when no process holds the other end of the pipe.
    for child in list(_CHILDREN):
        child.release()


os.register_at_fork(after_in_child=_release_all)


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
        """Examine the processes after a pause."""
        loop = asyncio.get_running_loop()
        # A step later than the timer: output that has come wakes its reader first.
        again = partial(loop.call_soon, self._examine)
        self._alarms[1:] = [loop.call_later(LOOK_EVERY_S, again)]

    def _examine(self) -> None:
        """End the program if it holds too much memory, or has been idle for too long."""
        if self._child.exit_code is not None:
            return
        family = list(descendants(self._child.pid))
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

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Count a caller that waits for the program; its idle time counts meanwhile."""
        self._callers += 1
        try:
            yield
        finally:
            self._callers -= 1

    @on_loop
    async def send(self, data: bytes) -> None:
        """See Session."""
        with self._awaited():
            await self._child.write(data)

    @on_loop
    async def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """See Session."""
        loop = asyncio.get_running_loop()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, self.end, "timeout")
        try:
            with self._awaited():
                line = await self._child.line()
        finally:
            if alarm:
                alarm.cancel()
        return line and line[:-1]

    @on_loop
    async def finish(self, stdin: bytes = b"") -> ExecResult:
        """See Session. stdin: the last input."""
        try:
            with self._awaited():
                await self._child.write(stdin)
                self._child.close_stdin()
                return await self._result()
        finally:
            # A program whose caller was cancelled must not run on.
            self.end("killed")

    @on_loop
    async def kill(self) -> ExecResult:
        """See Session."""
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
        # A program in a process namespace cannot send signals to the process outside that keeps it,
        # so a signal ended the sandbox.
        if self._ended is None and code < 0 and self._backend.guarantees.processes:
            name = self._backend.name
            raise SandboxError(
                f"the sandbox {name!r} broke while a program ran in it; {excerpt(self._child)}"
            )
        # Popen's -9 is a shell's 137.
        code = 128 - code if code < 0 else code
        stdout, stderr = self._child.stdout, self._child.stderr
        # A program that imitates the interpreter's message deceives only about its own end.
        last = bytes(stderr.data).rstrip().rpartition(b"\n")[2]
        ended: Ended = "signal" if 128 < code < 128 + 65 else "exited"
        if code == 128 + signal.SIGXCPU:
            ended = "cpu"
        elif code == 1 and last.startswith(b"MemoryError"):
            ended = "memory"
        ended = self._ended or ended
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

    async def wait(self) -> None:
        """Wait until its process has ended."""
        await self._child.ended()
