"""Child: a process on the running event loop, with its pipes and its end.

asyncio's own subprocesses need a thread for each process to see its end, and their `communicate`
reads output without a limit.
"""

import asyncio
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.cgroup import MemoryGroup, group_of, new_group
from ludic_gym.sandbox.launch import Launch, spawned

CHUNK_BYTES = 2**16
START_S = 30.0
REMOVE_EVERY_S = 0.05
REMOVALS = 200


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
    first: the process from which those of the program descend, 0 if it is unknown.
    group: of its memory, None where there can be none. out_of_memory: True if it ended beyond the
    group's limit.
    stdout, stderr: output so far. Every change calls `watch` and wakes all waiting coroutines.
    Raises SandboxError if the command of the launch cannot be started.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self.group = new_group() if launch.descends else None
        self.out_of_memory = False
        try:
            self._process = process = spawned(launch, self.group)
        except BaseException:
            self._remove(self.group)
            raise
        # An engine that is killed while it makes a container leaves it, and has forgotten it.
        self._starting, self._doomed = not launch.descends, False
        self.first = process.pid if launch.descends else 0
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
        self._call_at_end()
        _CHILDREN.add(self)

    def _readable(self, tap: Tap) -> None:
        """Take the new output of a pipe, and stop listening at its end or its limit."""
        tap.read()
        if self._starting and self.stdout.data:
            self._starting = False
            if self._doomed:
                self._kill()
        if tap.cut or not tap.open:
            # A pipe at its end stays readable, and would keep the loop busy.
            self._loop.remove_reader(tap.descriptor)
            # The program may have ended; its group may be gone before the keeper ends.
            self._look_at_memory()
        self._wake()

    def _look_at_memory(self) -> None:
        self.out_of_memory |= self.group is not None and self.group.exceeded()

    def identify(self) -> None:
        """Find the first process of a program that is no descendant, and its memory group.

        For a worker that is ready. If its command named no process, kills it and raises
        SandboxError.
        """
        path = self._launch.pid_file
        if path is None:
            return
        try:
            self.first = int(path.read_text())
        except (OSError, ValueError) as error:
            self.kill()
            command = self._launch.command[0]
            raise SandboxError(f"{command} wrote no process id to {path}: {error}") from error
        self.group = group_of(self.first)

    def _call_at_end(self) -> None:
        """Have `_ended` called on the loop when the process ends."""
        if sys.platform == "linux":
            # A pidfd becomes readable at the end. SIGCHLD would need the main thread, which runs
            # the caller's code.
            handle = os.pidfd_open(self._process.pid)
            self._loop.add_reader(handle, self._ended, handle)
        else:
            threading.Thread(target=self._wait_in_thread, daemon=True).start()

    def _wait_in_thread(self) -> None:
        self._process.wait()
        self._loop.call_soon_threadsafe(self._ended, None)

    def _ended(self, handle: int | None) -> None:
        """Read the rest of the output, free the process's id, and clean up."""
        if handle is not None:
            self._loop.remove_reader(handle)
            os.close(handle)
        # Kill the rest of its session before `wait` frees the id for another process.
        self._kill()
        code = self._process.wait()
        self.close_stdin()
        for tap in (self.stdout, self.stderr):
            self._loop.remove_reader(tap.descriptor)
            while tap.open and not tap.cut and tap.read():
                pass
        self._close_pipes()
        self._launch.end()
        self._look_at_memory()
        self._remove(self.group)
        self.exit_code = code
        self._wake()

    def _remove(self, group: MemoryGroup | None, attempts: int = REMOVALS) -> None:
        """Remove the group, which is refused until its last process has ended."""
        if group and attempts and not group.removed():
            self._loop.call_later(REMOVE_EVERY_S, self._remove, group, attempts - 1)

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
                await self._writable(self._stdin)
            except BrokenPipeError:
                self.close_stdin()

    async def _writable(self, descriptor: int) -> None:
        """Wait until the pipe has room, or for any other change."""
        self._loop.add_writer(descriptor, self._wake)
        try:
            await self.changed()
        finally:
            if self._stdin is not None:
                self._loop.remove_writer(descriptor)

    def close_stdin(self) -> None:
        """Close its stdin, so that it reads the end of its input."""
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
            self._pipes[0].close()

    def kill(self) -> None:
        """Kill it and the processes of its session; no effect after its end.

        A container is killed once it has started, or after `START_S`.
        """
        if self._starting:
            self._doomed = True
            self._loop.call_later(START_S, self._kill)
        else:
            self._kill()

    def _kill(self) -> None:
        # After `wait`, the id may belong to another process.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def release(self) -> None:
        """Drop it in a fork, where it is not a child process."""
        self._close_pipes()
        # Else Popen would wait for it when it is collected, and warn.
        self._process.returncode = 0


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()


def _release_all() -> None:
    # A program reads the end of its input only when no process holds the other end of the pipe.
    for child in list(_CHILDREN):
        child.release()


os.register_at_fork(after_in_child=_release_all)
