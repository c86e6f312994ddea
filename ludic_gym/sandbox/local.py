"""LocalSandbox: a sandbox made of processes on this machine."""

from __future__ import annotations

import asyncio
import os
import weakref

from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.loop import existing_loop, hold, on_sandbox_loop
from ludic_gym.sandbox.pool import Pool
from ludic_gym.sandbox.session import Running, job
from ludic_gym.sandbox.types import (
    DEFAULT_LIMITS,
    ExecResult,
    Guarantees,
    Limits,
    Program,
    Sandbox,
    Session,
)

CPUS = os.cpu_count() or 1
ATTEMPTS = 3


class LocalSandbox(Sandbox):
    """Sandbox that runs each program in a fresh process of a back end, started in advance.

    warm: processes in reserve. concurrency: programs at a time. Others wait, because programs that
    share a core would run out of wall time.
    """

    def __init__(
        self, backend: Backend, *, warm: int | None = None, concurrency: int | None = None
    ) -> None:
        self._backend = backend
        self._state = _State(
            backend,
            min(CPUS, 8) if warm is None else warm,
            2 * CPUS if concurrency is None else concurrency,
        )
        # A sandbox that is collected without `close` must not leave processes behind.
        weakref.finalize(self, _abandon, self._state).atexit = False

    @property
    def name(self) -> str:
        """See Sandbox."""
        return self._backend.name

    @property
    def guarantees(self) -> Guarantees:
        """See Sandbox."""
        return self._backend.guarantees

    async def run(
        self, program: Program, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> ExecResult:
        """See Sandbox."""
        # One call of the loop: between two, a cancelled caller would leave the program running.
        return await on_sandbox_loop(self._run(job(program, limits), stdin, limits))

    async def _run(self, work: bytes, stdin: bytes, limits: Limits) -> ExecResult:
        running = await self._begun(work, limits)
        return await running.finish(stdin)

    async def start(self, program: Program, *, limits: Limits = DEFAULT_LIMITS) -> Session:
        """See Sandbox."""
        return await on_sandbox_loop(self._begun(job(program, limits), limits))

    async def _begun(self, work: bytes, limits: Limits) -> Running:
        state = self._state
        await state.slots.acquire()
        try:
            running = await self._handed_over(work, limits)
        except BaseException:
            state.slots.release()
            raise
        running.at_end = lambda: state.ended(running)
        state.running.add(running)
        running.look()
        return running

    async def _handed_over(self, work: bytes, limits: Limits) -> Running:
        # Until a program begins, the loss of its worker has no effect: another one takes the job.
        failure = SandboxError(f"the sandbox {self.name!r} is closed; open another")
        for _ in range(ATTEMPTS):
            if self._state.closed:
                break
            try:
                running = Running(await self._state.pool.take(limits), self._backend, limits)
                await running.begin(work)
            except NoSandbox:
                raise
            except SandboxError as error:
                failure = error
            else:
                return running
        raise failure

    async def close(self) -> None:
        """See Sandbox."""
        await on_sandbox_loop(self._state.close())


class _State:
    """Processes and slots of one sandbox. Used on the sandboxes' loop only."""

    def __init__(self, backend: Backend, warm: int, concurrency: int) -> None:
        self._shape = (backend, warm, concurrency)
        self.closed = False
        self._begin()
        hold(self)

    def _begin(self) -> None:
        backend, warm, concurrency = self._shape
        self.pool = Pool(backend, warm)
        self.slots = asyncio.Semaphore(concurrency)
        self.running: set[Running] = set()

    def renew(self) -> None:
        # Collecting these objects in the fork would unregister the parent's processes.
        _ABANDONED.append((self.pool, self.running))
        self._begin()

    def ended(self, running: Running) -> None:
        if running in self.running:
            self.running.remove(running)
            self.slots.release()

    async def close(self) -> None:
        self.closed = True
        running = list(self.running)
        for one in running:
            one.end("killed")
        await asyncio.gather(self.pool.close(), *(one.gone() for one in running))


_ABANDONED: list[tuple[Pool, set[Running]]] = []


def _abandon(state: _State) -> None:
    # The garbage collector may call this on any thread, the sandboxes' own included.
    loop = existing_loop()
    if loop:
        loop.call_soon_threadsafe(state.pool.clear)
