"""LocalSandbox: a sandbox made of processes on this machine."""

import os
import weakref

from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.loop import existing_loop, on_sandbox_loop
from ludic_gym.sandbox.pool import Pool
from ludic_gym.sandbox.session import job
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


class LocalSandbox(Sandbox):
    """Sandbox that runs each program in a fresh process of a back end, started in advance.

    backend: makes the processes; see `launch` for one of your own.
    warm: processes in reserve, by default one per CPU, 8 at most.
    concurrency: programs at a time, by default two per CPU. Others wait, because programs that
        share a core would run out of wall time.
    Safe in threads, forks and any number of event loops. After `close`, `run` and `start` raise
    SandboxError.
    """

    def __init__(
        self, backend: Backend, *, warm: int | None = None, concurrency: int | None = None
    ) -> None:
        warm = min(CPUS, 8) if warm is None else warm
        self._backend = backend
        self._pool = Pool(backend, warm, 2 * CPUS if concurrency is None else concurrency)
        # A sandbox that is collected without `close` must not leave processes behind.
        weakref.finalize(self, _abandon, self._pool).atexit = False

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
        """The result of a job, on the sandboxes' loop."""
        running = await self._pool.begun(work, limits)
        return await running.finish(stdin)

    async def start(self, program: Program, *, limits: Limits = DEFAULT_LIMITS) -> Session:
        """See Sandbox."""
        return await on_sandbox_loop(self._pool.begun(job(program, limits), limits))

    async def close(self) -> None:
        """See Sandbox."""
        await on_sandbox_loop(self._pool.close())


def _abandon(pool: Pool) -> None:
    """End the workers in reserve of a sandbox that has been collected."""
    # The garbage collector may call this on any thread, the sandboxes' own included.
    loop = existing_loop()
    if loop:
        loop.call_soon_threadsafe(pool.clear)
