"""LocalSandbox: a sandbox of processes on this machine, started in advance.

The start of a process takes longer than most programs of an environment. The reserve refills while
programs run, on the sandboxes' loop.
"""

import asyncio
import os
from collections import deque

from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.loop import HELD, on_loop
from ludic_gym.sandbox.session import READY, Child, Running, expect, job
from ludic_gym.sandbox.types import (
    DEFAULT_LIMITS,
    ExecResult,
    Guarantees,
    Limits,
    Program,
    Sandbox,
    Session,
)

ATTEMPTS = 3
CPUS = os.cpu_count() or 1


class LocalSandbox(Sandbox):
    """Sandbox that runs each program in a fresh process of a back end, started in advance.

    backend: makes the processes; see `launch` for one of your own.
    warm: processes in reserve, by default one per CPU, 8 at most. Only those for the most recent
        `disk_bytes` are kept: mixed limits in turn would start every process anew.
    concurrency: programs at a time, by default two per CPU. Others wait, because programs that
        share a core would run out of wall time.
    Safe in threads, forks and any number of event loops. Its processes end with `close`, after
    which `run` and `start` raise SandboxError, or at exit.
    """

    def __init__(
        self, backend: Backend, *, warm: int | None = None, concurrency: int | None = None
    ) -> None:
        self._backend = backend
        self._size = min(CPUS, 8) if warm is None else warm
        self._concurrency = 2 * CPUS if concurrency is None else concurrency
        self._closed = False
        self._begin()
        HELD.add(self)

    def _begin(self) -> None:
        self._disk_bytes = 0
        self._reserve: deque[asyncio.Task[Child]] = deque()
        self._running: set[Running] = set()
        self._slots = asyncio.Semaphore(self._concurrency)

    def renew(self) -> None:
        """Drop the processes in a fork: they belong to the parent."""
        # Collecting these objects in the fork would unregister the parent's processes.
        _ABANDONED.append((self._reserve, self._running))
        self._begin()

    @property
    def name(self) -> str:
        """See Sandbox."""
        return self._backend.name

    @property
    def guarantees(self) -> Guarantees:
        """See Sandbox."""
        return self._backend.guarantees

    @on_loop
    async def run(
        self, program: Program, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> ExecResult:
        """See Sandbox."""
        # One call of the loop: between two, a cancelled caller would leave the program running.
        running = await self._started(job(program, limits), limits)
        return await running.finish(stdin)

    @on_loop
    async def start(self, program: Program, *, limits: Limits = DEFAULT_LIMITS) -> Session:
        """See Sandbox."""
        return await self._started(job(program, limits), limits)

    @on_loop
    async def close(self) -> None:
        """See Sandbox. A program that runs gets "killed"."""
        self._closed = True
        reserve, self._reserve = self._reserve, deque()
        running = list(self._running)
        for one in running:
            one.end("killed")
        for coming in reserve:
            coming.cancel()
        for child in await asyncio.gather(*reserve, return_exceptions=True):
            if isinstance(child, Child):
                child.kill()
                await child.ended()
        for one in running:
            await one.wait()
        HELD.discard(self)

    async def _started(self, work: bytes, limits: Limits) -> Running:
        """A program that has begun, when there was a free place. work: from `job`.

        Raises SandboxError if it does not begin in `ATTEMPTS` workers or the sandbox is closed, and
        NoSandbox at once if the back end does not work.
        """
        await self._slots.acquire()
        try:
            running = await self._begin_in_worker(work, limits)
        except BaseException:
            self._slots.release()
            raise
        running.at_end = lambda: self._ended(running)
        self._running.add(running)
        # It may have ended already.
        running.look()
        return running

    def _ended(self, running: Running) -> None:
        """Free the place of a program that has ended."""
        # Called at every change after the end, of which the first frees the place.
        if running in self._running:
            self._running.remove(running)
            self._slots.release()

    async def _begin_in_worker(self, work: bytes, limits: Limits) -> Running:
        """The job in a worker that has begun it."""
        # Until a program begins, the loss of its worker has no effect: another one takes the job.
        failure = SandboxError(f"the sandbox {self._backend.name!r} is closed; open another")
        for _ in range(ATTEMPTS):
            if self._closed:
                break
            try:
                running = Running(await self._take(limits), self._backend, limits)
                await running.begin(work)
            # Another attempt would find the same machine.
            except NoSandbox:
                raise
            except SandboxError as error:
                failure = error
            else:
                return running
        raise failure

    async def _take(self, limits: Limits) -> Child:
        """A worker with these limits from the reserve, or a new one."""
        if limits.disk_bytes != self._disk_bytes:
            while self._reserve:
                _discard(self._reserve.popleft())
            self._disk_bytes = limits.disk_bytes
        while True:
            coming = self._reserve.popleft() if self._reserve else self._starting(limits)
            try:
                # Without the shield, a cancelled caller would wait for the end of the worker.
                child = await asyncio.shield(coming)
            except asyncio.CancelledError:
                _discard(coming)
                raise
            # The system may have killed a worker that waited long, for lack of memory for instance.
            if child.exit_code is None:
                # Unless the limits have changed since.
                while limits.disk_bytes == self._disk_bytes and len(self._reserve) < self._size:
                    self._reserve.append(self._starting(limits))
                return child

    def _starting(self, limits: Limits) -> asyncio.Task[Child]:
        return asyncio.get_running_loop().create_task(start_worker(self._backend, limits))


_ABANDONED: list[tuple[deque[asyncio.Task[Child]], set[Running]]] = []


def _discard(coming: asyncio.Task[Child]) -> None:
    """End a worker that is still starting, or has started."""
    coming.cancel()
    coming.add_done_callback(_kill)


def _kill(coming: asyncio.Task[Child]) -> None:
    if not coming.cancelled() and coming.exception() is None:
        coming.result().kill()


async def start_worker(backend: Backend, limits: Limits) -> Child:
    """Start a worker and wait until it is ready.

    Raises SandboxError if it does not start within a minute,
    and NoSandbox if the back end cannot run here.
    """
    child = Child(backend.launch(limits))
    await expect(child, READY, f"the sandbox {backend.name!r} does not start")
    return child
