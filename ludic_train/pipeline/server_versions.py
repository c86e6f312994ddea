"""Versions of the params that servers have, for actors that hold no model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ludic_gym.clients.openai import root_addresses
from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.errors import ClientError
from ludic_train.publishers.base import Stamping

WEIGHT_INFO_ROUTE = "/weight_info"
# An actor counts failures itself, and waits longer and longer.
LOOK = HttpOptions(connect_timeout_s=10.0, request_timeout_s=30.0, max_retries=1)


class ServedVersions:
    """The versions of servers that a trainer publishes to: vLLM's, or Ludic's own.

        client = VLLMTokenClient(urls, render)
        served = ServedVersions(urls, [client])
        await run_pipeline_actor(tasks, make_policy, algo, queue, served.refresh)

    urls: of the servers, the same that the trainer publishes to.
    clients: get each version as `policy_version`; tokens have the versions of their responses.
    every_s: least seconds between two requests; `refresh` returns the known version in between.
    version: the oldest version of all servers at the last look; None before all have one.
    """

    def __init__(
        self, urls: Sequence[str] | str, clients: Sequence[Stamping] = (), *, every_s: float = 0.25
    ) -> None:
        self.urls = tuple(root_addresses(urls))
        self.version: int | None = None
        self._clients = clients
        self._every_s = every_s
        # One transport per server: a pool of all would take the version of any that is up.
        self._servers = [HttpTransport([url], "VLLM_API_KEY", LOOK) for url in self.urls]
        self._published: set[str] = set()
        self._next_look = 0.0

    async def refresh(self) -> int | None:
        """The oldest of the servers' versions; None until something was published to all.

        Raises ClientError for a server that gives no answer, and for one that was started again
        and so lost what was published to it. The version stays as it was then, and the next call
        looks at once.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._next_look:
            found = await asyncio.gather(*map(self._named, self._servers))
            self._next_look = now + self._every_s
            self._note([version for version in found if version is not None])
        return self.version

    def _note(self, found: Sequence[int]) -> None:
        """Keep the oldest version, and give it to the clients."""
        # The oldest: a group must not count as fresher than the server that may sample it.
        self.version = min(found) if len(found) == len(self.urls) else None
        for client in self._clients:
            client.policy_version = self.version

    async def _named(self, server: HttpTransport) -> int | None:
        """Version of one server; None before the first publication. Raises ClientError."""
        answer = await server.get(WEIGHT_INFO_ROUTE)
        named, (url,) = str(answer.get("weight_version")), server.used
        if named.isdecimal():
            self._published.add(url)
            return int(named)
        if url in self._published:
            raise ClientError(
                f"{url} has params that it calls {named!r}, no version that was published: it was "
                "started again; the trainer has to publish once more"
            )
        return None

    async def aclose(self) -> None:
        """Close all connections."""
        for server in self._servers:
            await server.close()
