"""A sandbox that breaks, for tests of what is done about that."""

from __future__ import annotations

import random

from ludic_gym.errors import SandboxError


class CrashingSession:
    """A session whose sandbox breaks after some lines."""

    def __init__(self, session, lines_left: int) -> None:
        self._session = session
        self._lines_left = lines_left

    async def send(self, data):
        await self._session.send(data)

    async def receive_line(self, timeout_s=None):
        self._lines_left -= 1
        if self._lines_left < 0:
            await self._session.kill()
            raise SandboxError("injected: broke while a program ran in it")
        return await self._session.receive_line(timeout_s)

    async def finish(self):
        return await self._session.finish()

    async def kill(self):
        return await self._session.kill()


class CrashingSandbox:
    """Starts sessions of a real sandbox, of which a share break: at once, or later."""

    def __init__(self, sandbox, share: float) -> None:
        self.name = f"crashing {sandbox.name}"
        self.guarantees = sandbox.guarantees
        self.crashes = self.starts = 0
        self._sandbox = sandbox
        self._share = share
        self._rng = random.Random(0)

    async def start(self, program, **options):
        self.starts += 1
        if self._rng.random() >= self._share:
            return await self._sandbox.start(program, **options)
        self.crashes += 1
        if self._rng.random() < 0.5:
            raise SandboxError("injected: does not start")
        session = await self._sandbox.start(program, **options)
        return CrashingSession(session, self._rng.randrange(3))

    async def run(self, program, **options):
        return await self._sandbox.run(program, **options)

    async def close(self):
        await self._sandbox.close()
