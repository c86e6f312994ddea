"""A group of servers that must have the same params: the state of each, and its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ludic_gym.clients.transport import root_addresses
from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.errors import PublishError
from ludic_train.sources.publisher import Stamping

State = Literal["new", "ready", "updating", "failed"]
OnFailure = Literal["stop", "skip"]
# Seconds that a server may take for a phase: to prepare the params of a large model, at most.
LIMIT_S = 300.0
Call = Callable[["Replica"], Awaitable[object]]


@dataclass(slots=True, eq=False)
class Replica:
    """A server, and its control routes.

    state: new until it is connected; ready to sample; updating between pause and resume; failed
        until it is connected again.
    version: of the params that it was last seen to have; None for those it was started with.
    phase: the current one, or the one that failed. error: its reason.
    """

    url: str
    server: ControlClient
    state: State = "new"
    version: int | None = None
    phase: str = ""
    error: str = ""

    def describe(self) -> str:
        """One line about its state."""
        state = f"failed in {self.phase}: {self.error}" if self.state == "failed" else self.state
        return f"{self.url}, version {self.version}: {state}"

    def connected(self) -> None:
        """Forget an earlier failure, and the version from before it."""
        self.error, self.version = "", None


class Fleet:
    """The servers of one publisher.

    urls: of the servers, with or without "/v1"; each once.
    clients: get each version, and the servers that have it.
    on_failure: "stop" raises at the first phase that fails on any server; "skip" continues without
        the servers that fail, which stay paused, and raises only when none is left.
    limit_s: time limit of each phase.
    Raises ConfigError for no server, equal ones, another `on_failure`, or a limit of 0 or less.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        clients: Sequence[Stamping],
        on_failure: OnFailure,
        limit_s: float,
    ) -> None:
        addresses = root_addresses(urls)
        if not addresses or len(set(addresses)) < len(addresses):
            raise ConfigError(f"urls are one server each, got {urls!r}")
        if on_failure not in ("stop", "skip"):
            raise ConfigError(f'on_failure={on_failure!r} must be "stop" or "skip"')
        if not limit_s > 0:
            raise ConfigError(f"limit_s={limit_s} must be above 0")
        self.limit_s = limit_s
        self.replicas = [Replica(url, ControlClient(url)) for url in addresses]
        self._clients, self._on_failure = clients, on_failure

    def follow(self, urls: Sequence[str]) -> None:
        """Have these servers from now on; those that are new here are connected first.

        To be called between two publications.
        """
        current = {replica.url: replica for replica in self.replicas}
        self.replicas = [
            # With an error: another publisher, or this one, may have left a session open there.
            current.get(url) or Replica(url, ControlClient(url), error="it has just joined")
            for url in root_addresses(urls)
        ]

    async def aclose(self) -> None:
        """Close the connections to the servers; the next call opens new ones."""
        await asyncio.gather(*(replica.server.aclose() for replica in self.replicas))

    def in_state(self, *states: State) -> list[Replica]:
        """The servers in any of these states."""
        return [replica for replica in self.replicas if replica.state in states]

    async def run(
        self, phase: str, replicas: Iterable[Replica], call: Call, *, then: State | None = None
    ) -> None:
        """Make the call to all of them at once; set the state of those that succeed to `then`.

        phase: its name, for errors.
        then: None leaves the state as it is.
        Raises PublishError according to `on_failure`, with each server and phase that failed.
        """
        called = list(replicas)

        async def recorded(replica: Replica) -> None:
            # Recorded one by one: the publication may be cancelled while others are in the call.
            replica.phase = phase
            error = await self._failure(replica, call)
            if error is not None:
                replica.state, replica.error = "failed", error
            elif then is not None:
                replica.state = then

        # `recorded` raises nothing, so all calls have ended here: none runs on during a rollback.
        await asyncio.gather(*map(recorded, called))
        failed = [replica for replica in called if replica.state == "failed"]
        if failed and (self._on_failure == "stop" or not self.in_state("ready", "updating")):
            raise PublishError("; ".join(replica.describe() for replica in failed))

    async def attempt(self, replicas: Iterable[Replica], call: Call) -> None:
        """Make the call to all of them at once; ignore failures."""
        await asyncio.gather(*(self._failure(replica, call) for replica in replicas))

    async def _failure(self, replica: Replica, call: Call) -> str | None:
        """The reason for which the call failed; None if it succeeded."""
        try:
            async with asyncio.timeout(self.limit_s):
                await call(replica)
        except TimeoutError:
            return f"no end within {self.limit_s:g} s"
        except PublishError as error:
            return str(error)
        return None

    async def connect(self, route: str) -> None:
        """Connect the new and failed servers, those that respond on `route`.

        Raises PublishError as `run` does.
        """

        async def greet(replica: Replica) -> None:
            await replica.server.get(route)
            replica.connected()

        await self.run("connect", self.in_state("new", "failed"), greet, then="ready")

    def stamp(self, version: int, state: State) -> None:
        """Set the version of the clients, and have them use the servers in `state` only."""
        for client in self._clients:
            client.use([replica.url for replica in self.in_state(state)])
            client.policy_version = version
