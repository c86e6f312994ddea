"""Servers of a run that other programs start again: one that lost its params gets them anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import cast

from ludic_gym.clients.transport import root_addresses
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_train.cluster.publish.files import FilesPublisher, folder_for
from ludic_train.cluster.publish.vllm_transfer import VLLMTransferPublisher, server_backend
from ludic_train.cluster.servers.health import ANSWER_S, PATIENCE_S, POLL_S, server_version
from ludic_train.cluster.servers.run_server import OwnClient, OwnPublisher
from ludic_train.cluster.servers.supervisor import RECENT_S, RESTARTS
from ludic_train.cluster.servers.vllm_command import SERVED_DTYPES
from ludic_train.errors import ServerError
from ludic_train.runs.config import RunConfig
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine
from ludic_train.sources.publisher import PolicyPublisher


class FoundServers:
    """Servers at fixed addresses, used as a `SupervisedServer`: watched, and not started.

    starts: 1, and 1 more for each time that servers were found to be silent, or without the params
    that were published to them.
    """

    def __init__(self, urls: Sequence[str], *, patience_s: float = PATIENCE_S) -> None:
        self.starts = 1
        self._losses: list[float] = []
        self._urls, self._patience_s = root_addresses(urls), patience_s

    async def ready(self) -> None:
        """Return once all servers respond. Raises ServerError after `patience_s` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while silent := [url for url, name in (await self._named()).items() if name is None]:
            if loop.time() > until:
                raise ServerError(
                    f"no answer from {', '.join(silent)} for {self._patience_s:g} s: start it "
                    "again, and continue with --resume"
                )
            await asyncio.sleep(POLL_S)

    async def survived(self, start: int) -> bool:
        """True if all servers respond, and have the params that were published to them.

        start: `starts` at the time of the request that failed.
        True also after RESTARTS losses within RECENT_S, so that the failure is raised.
        """
        # A killed process has closed its connections a moment before its port.
        await asyncio.sleep(POLL_S)
        named = await self._named()
        if start != self.starts:
            return False
        # A server that was started again does not call its params by a number.
        if all(name is not None and name.isdecimal() for name in named.values()):
            return True
        now = time.monotonic()
        self._losses = [each for each in self._losses if now - each < RECENT_S]
        if len(self._losses) == RESTARTS:
            return True
        self._losses.append(now)
        self.starts += 1
        return False

    async def _named(self) -> dict[str, str | None]:
        names = await asyncio.gather(*(server_version(url, ANSWER_S) for url in self._urls))
        return dict(zip(self._urls, names, strict=True))


@asynccontextmanager
async def with_found_servers(
    learner: Learner, config: RunConfig, machine: Machine
) -> AsyncIterator[tuple[Learner, Machine, None]]:
    """The learner, whose requests and publications outlive a restart of its servers.

    learner: that samples from the servers of the machine.
    """
    urls, dtype = machine.servers, SERVED_DTYPES[config.tune.dtype]
    client = cast(VLLMTokenClient, learner.client)
    servers = FoundServers(urls)
    await servers.ready()
    backend = await server_backend(urls, learner.model)

    def make() -> PolicyPublisher:
        model, clients = learner.model, [client]
        if backend is not None:
            return VLLMTransferPublisher(urls, model, backend, clients=clients)
        folder = folder_for(urls, config.out)
        return FilesPublisher(urls, folder, clients=clients, model=model, dtype=dtype)

    publisher = OwnPublisher(servers, make)
    async with aclosing(client):
        params = ((name, p.detach()) for name, p in learner.model.named_parameters())
        # Before any request: what fails later was lost since.
        await publisher.publish(params, 0)
        repeating = OwnClient(client, servers, publisher)
        yield replace(learner, client=repeating, publisher=publisher), machine, None
