"""Versions of the params that servers have, for actors that hold no model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ludic_gym.clients.transport import HttpTransport, root_addresses
from ludic_gym.concurrency import cancel_all
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_train.errors import QueueUnavailable
from ludic_train.sources.publisher import Stamping

WEIGHT_INFO_ROUTE = "/weight_info"
# An actor counts failures itself, and waits longer and longer.
LOOK = HttpOptions(connect_timeout_s=10.0, request_timeout_s=30.0, max_retries=1, max_wait_s=10.0)
# A look is waited for so long; a server is silent after SILENT_S, and then gets no requests.
PROMPT_S, SILENT_S = 0.5, 15.0
# In this time a publication that has reached one server reaches the others.
BEHIND_S = 5.0
# Seconds between two reads of the list of servers that have joined.
FIND_S = 1.0

Joined = Callable[[], Awaitable[Sequence[str]]]
"""Addresses of the servers that have joined a run by now."""


@dataclass(slots=True, eq=False)
class _Server:
    """A server as it was last seen.

    version: of its params; None before the first publication. error: why it gets no requests.
    look: the one under way, since `since`. had: True if something was published to it.
    """

    url: str
    http: HttpTransport
    version: int | None = None
    error: str = ""
    look: asyncio.Task[None] | None = None
    since: float = 0.0
    had: bool = False


class ServedVersions:
    """The versions of servers that a trainer publishes to: vLLM's, or Ludic's own.

        client = VLLMTokenClient(urls, render)
        served = ServedVersions(urls, [client])
        await run_pipeline_actor(tasks, make_policy, queue, served.refresh)

    urls: of the servers, the same that the trainer publishes to.
    clients: get each version as `policy_version`, and the servers that requests may go to: those
        that respond and have the newest version. A server that is BEHIND_S seconds behind the
        others, silent for SILENT_S, or was started again, gets none until it has that version.
    every_s: least seconds between two looks; `refresh` returns the known version in between.
    joined: gives further servers, which come and go.
    version: the oldest version of the servers in use; None before one has any.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        clients: Sequence[Stamping] = (),
        *,
        every_s: float = 0.25,
        joined: Joined | None = None,
    ) -> None:
        self.version: int | None = None
        self._fixed = root_addresses(urls)
        self._clients, self._every_s, self._joined = clients, every_s, joined
        self._servers: dict[str, _Server] = {}
        self._used: list[str] = list(self._fixed)
        self._newest, self._newest_since = -1, 0.0
        self._next_look = self._next_find = 0.0
        self._follow(self._fixed)

    async def refresh(self) -> int | None:
        """The oldest version of the servers in use; None until something was published to one.

        Raises ClientError if no server can be used any more, and the next call looks at once.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._next_look:
            await self._find(now)
            await self._look(now)
            self._note(asyncio.get_running_loop().time())
            self._next_look = now + self._every_s
        return self.version

    async def aclose(self) -> None:
        """Close all connections."""
        for server in self._follow([]):
            await _close(server)

    async def _find(self, now: float) -> None:
        """Read which servers have joined, if that was not done just now."""
        if self._joined is None or now < self._next_find:
            return
        self._next_find = now + FIND_S
        try:
            joined = root_addresses(await self._joined())
        # Those that are known may live all the same.
        except QueueUnavailable:
            return
        gone = self._follow([*self._fixed, *joined])
        for server in gone:
            await _close(server)

    def _follow(self, urls: Sequence[str]) -> list[_Server]:
        """Look at these servers from now on; the others, which were looked at before."""
        before = self._servers
        # A transport per server: a pool of all would take the version of any that is up.
        self._servers = {
            url: before.get(url) or _Server(url, HttpTransport([url], "VLLM_API_KEY", LOOK))
            for url in urls
        }
        return [server for url, server in before.items() if url not in self._servers]

    async def _look(self, now: float) -> None:
        """Look at all servers; wait shortly for those that usually respond."""
        for server in self._servers.values():
            if server.look is None:
                server.since, server.look = now, asyncio.create_task(_seen(server))
        # Not for one that has been silent for long: every refresh would take PROMPT_S.
        awaited = [s.look for s in self._servers.values() if s.look and now - s.since < SILENT_S]
        if awaited:
            await asyncio.wait(awaited, timeout=PROMPT_S)
        ended = asyncio.get_running_loop().time()
        for server in self._servers.values():
            if server.look is not None and server.look.done():
                server.look = None
            elif ended - server.since >= SILENT_S:
                server.error = f"{server.url}: no response for {ended - server.since:.0f} s"

    def _note(self, now: float) -> None:
        """Choose the servers to use, and tell the clients. Raises ClientError if none is left."""
        able = {s.url: s.version for s in self._servers.values() if not s.error}
        versions = {url: version for url, version in able.items() if version is not None}
        if not versions:
            errors = [server.error for server in self._servers.values() if server.error]
            if errors or self.version is not None:
                raise ClientError("; ".join(errors) or "no server is left in the run")
            return
        newest = max(versions.values())
        if newest != self._newest:
            self._newest, self._newest_since = newest, now
        if now - self._newest_since >= BEHIND_S:
            versions = {url: version for url, version in versions.items() if version == newest}
        # The oldest: a group must not count as fresher than the server that may sample it.
        self.version = min(versions.values())
        for client in self._clients:
            client.policy_version = self.version
        self._use(list(versions))

    def _use(self, urls: list[str]) -> None:
        """Have the clients use these servers, and log which have come and gone."""
        if urls == self._used:
            return
        log = logging.getLogger(__name__)
        for url in [url for url in self._used if url not in urls]:
            server = self._servers.get(url)
            reason = server.error if server else "it has left the run"
            log.warning(
                "%s is in use no more (%s); requests go to %d others",
                url,
                reason or "its params are behind",
                len(urls),
            )
        for url in [url for url in urls if url not in self._used]:
            log.warning("%s is in use, with version %s", url, self._servers[url].version)
        for client in self._clients:
            client.use(urls)
        self._used = urls


async def _seen(server: _Server) -> None:
    """Note the version of the server, or why it gets no requests."""
    try:
        response = await server.http.get(WEIGHT_INFO_ROUTE)
    except ClientError as error:
        server.error = str(error)
        return
    named = str(response.get("weight_version"))
    if named.isdecimal():
        server.version, server.had, server.error = int(named), True, ""
        return
    server.version = None
    server.error = ""
    if server.had:
        server.error = (
            f"{server.url} has params that it calls {named!r}, no version that was published: it "
            "was started again; the trainer has to publish once more"
        )


async def _close(server: _Server) -> None:
    if server.look is not None:
        await cancel_all([server.look])
    await server.http.close()
