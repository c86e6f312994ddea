"""Pool: workers started in advance, so that programs begin at once."""

from __future__ import annotations

import asyncio
from collections import deque

from ludic_gym.sandbox.child import Child
from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.session import READY, expect
from ludic_gym.sandbox.types import Limits


class Pool:
    """`size` workers in reserve, replaced as they are taken. Used on the sandboxes' loop only.

    Only workers for the most recent limits are kept.
    """

    def __init__(self, backend: Backend, size: int) -> None:
        self._backend = backend
        self._size = size
        self._kind: tuple[int, ...] = ()
        self._reserve: deque[asyncio.Task[Child]] = deque()

    async def take(self, limits: Limits) -> Child:
        """A worker that is ready. Raises SandboxError if none starts."""
        kind = self._backend.fixed(limits)
        if kind != self._kind:
            self.clear()
            self._kind = kind
        while True:
            coming = self._reserve.popleft() if self._reserve else self._started(limits)
            try:
                # Without the shield, a cancelled caller would wait for the end of the worker.
                child = await asyncio.shield(coming)
            except asyncio.CancelledError:
                _discard(coming)
                raise
            # The system may have killed a worker that waited long, for lack of memory for instance.
            if child.exit_code is None:
                self._refill(limits)
                return child

    def _refill(self, limits: Limits) -> None:
        if self._backend.fixed(limits) == self._kind:
            while len(self._reserve) < self._size:
                self._reserve.append(self._started(limits))

    def _started(self, limits: Limits) -> asyncio.Task[Child]:
        return asyncio.get_running_loop().create_task(started(self._backend, limits))

    def clear(self) -> None:
        """End all waiting workers, without waiting for their end."""
        while self._reserve:
            _discard(self._reserve.popleft())

    async def close(self) -> None:
        """End all waiting workers, and wait until they have ended."""
        reserve, self._reserve = self._reserve, deque()
        for coming in reserve:
            coming.cancel()
        for child in await asyncio.gather(*reserve, return_exceptions=True):
            if isinstance(child, Child):
                child.kill()
                await child.ended()


def _discard(coming: asyncio.Task[Child]) -> None:
    coming.cancel()
    coming.add_done_callback(_kill)


def _kill(coming: asyncio.Task[Child]) -> None:
    if not coming.cancelled() and coming.exception() is None:
        coming.result().kill()


async def started(backend: Backend, limits: Limits) -> Child:
    """Start a worker and wait until it is ready. Raises SandboxError if it does not start."""
    child = Child(backend.launch(limits))
    await expect(child, READY, f"the sandbox {backend.name!r} does not start")
    return child
