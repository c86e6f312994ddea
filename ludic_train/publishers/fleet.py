"""Several servers that shall have the same params: what state each is in, and what failed where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from ludic_gym.errors import ConfigError
from ludic_train.errors import PublishError
from ludic_train.publishers.control import ControlClient, PhaseLimits

State = Literal["new", "ready", "updating", "failed"]
OnFailure = Literal["stop", "go on"]
Call = Callable[["Replica", ControlClient], Awaitable[object]]


@dataclass(slots=True, eq=False)
class Replica:
    """A server.

    state: new until it is connected; ready to be sampled from; updating between pause and resume;
        failed until it is connected again.
    version: of the params that it was last seen to have; None for those it was started with.
    phase: the one it is in, or failed in. error: why.
    """

    url: str
    state: State = "new"
    version: int | None = None
    phase: str = ""
    error: str = ""

    def describe(self) -> str:
        """One line about its state."""
        what = f"failed in {self.phase}: {self.error}" if self.state == "failed" else self.state
        return f"{self.url}, version {self.version}: {what}"


@dataclass(slots=True, eq=False)
class Fleet:
    """The servers of one publisher.

    on_failure: "stop" raises at the first phase that fails anywhere; "go on" leaves out the
        servers that fail, paused as they are, and raises only when none is left.
    """

    urls: Sequence[str]
    on_failure: OnFailure = "stop"
    limits: PhaseLimits = field(default_factory=PhaseLimits)
    replicas: list[Replica] = field(init=False)
    _clients: dict[str, ControlClient] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        addresses = [url.rstrip("/").removesuffix("/v1") for url in self.urls]
        if not addresses or len(set(addresses)) < len(addresses):
            raise ConfigError(f"urls are one server each, got {list(self.urls)}")
        if self.on_failure not in ("stop", "go on"):
            raise ConfigError(f'on_failure={self.on_failure!r} must be "stop" or "go on"')
        self.replicas = [Replica(url) for url in addresses]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connections to the servers, as long as the block."""
        import aiohttp

        # vLLM closes a connection after an error, at a moment when the next request may be on it.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            self._clients = {r.url: ControlClient(r.url, session) for r in self.replicas}
            yield

    def in_state(self, *states: State) -> list[Replica]:
        """The servers in any of these states."""
        return [replica for replica in self.replicas if replica.state in states]

    async def run(
        self, phase: str, replicas: Iterable[Replica], call: Call, *, then: State | None = None
    ) -> None:
        """Do the phase with all of them at once; those that it worked with are in state `then`.

        Raises PublishError as `on_failure` says, naming each server and phase that failed.
        """
        asked = list(replicas)
        await asyncio.gather(*(self._attempted(r, phase, call, then or r.state) for r in asked))
        failed = [replica for replica in asked if replica.state == "failed"]
        if failed and (self.on_failure == "stop" or not self.in_state("ready", "updating")):
            raise PublishError("; ".join(replica.describe() for replica in failed))

    async def attempt(self, phase: str, replicas: Iterable[Replica], call: Call) -> None:
        """Do it with all of them, for the good of those with which it works."""
        limit_s: float = getattr(self.limits, phase)

        async def tried(replica: Replica) -> None:
            try:
                async with asyncio.timeout(limit_s):
                    await call(replica, self._clients[replica.url])
            except (PublishError, TimeoutError):
                return

        await asyncio.gather(*map(tried, replicas))

    async def _attempted(self, replica: Replica, phase: str, call: Call, then: State) -> None:
        limit_s: float = getattr(self.limits, phase)
        replica.phase = phase
        try:
            async with asyncio.timeout(limit_s):
                await call(replica, self._clients[replica.url])
        except TimeoutError:
            replica.state, replica.error = "failed", f"no end within {limit_s:g} s"
        except PublishError as error:
            replica.state, replica.error = "failed", str(error)
        else:
            replica.state = then
