"""Pushing params to vLLM servers while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.errors import PublishError
from ludic_train.publishers.base import Stamping
from ludic_train.publishers.checkpoint_names import checkpoint_params
from ludic_train.publishers.control import SESSION_OPEN, ControlClient, PhaseLimits
from ludic_train.publishers.fleet import Call, Fleet, OnFailure, Replica
from ludic_train.publishers.transports import GlooWire, Send, Wire, met
from ludic_vllm.wire import Chunk, packed

CHUNK_BYTES = 256 * 2**20


class VLLMPublisher:
    """Brings params to vLLM servers; requests in flight are held for the swap and then go on.

    urls: of the servers, started with `ludic serve`.
    wire: how params travel; None takes TCP.
    clients: told of each version, and of the servers that have it.
    on_failure, limits: what happens when a server fails, and when it counts as failing.
    lora_scaling: alpha / rank of adapters that are published merged.
    keep: whether a param of that name, as the checkpoint has it, is sent.

    All servers take a version before any uses it: where one fails and `on_failure` is "stop", every
    server still has the version before. A server that failed is connected again, and given
    everything, at the next publication.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        wire: Wire | None = None,
        *,
        clients: Sequence[Stamping] = (),
        on_failure: OnFailure = "stop",
        limits: PhaseLimits | None = None,
        lora_scaling: float | None = None,
        keep: Callable[[str], bool] = lambda name: True,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        if chunk_bytes < 1:
            raise ConfigError(f"chunk_bytes={chunk_bytes} must be at least 1")
        self.fleet = Fleet(addresses, on_failure, limits or PhaseLimits())
        self._wire = wire or GlooWire()
        self._clients = clients
        self._lora_scaling = lora_scaling
        self._keep = keep
        self._chunk_bytes = chunk_bytes
        self._sends: dict[str, Send] = {}

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from `params`, named `version`.

        Raises PublishError that names the servers and phases that failed.
        """
        async with self.fleet.opened():
            joining = self.fleet.in_state("new", "failed")
            await self.fleet.run("connect", joining, self._connect, then="ready")
            try:
                await self._brought(params, version)
            except BaseException:
                await self._given_up()
                # Params that are spread over ranks need every rank to read them to the end.
                for _ in params:
                    pass
                raise

    async def take_over(self) -> None:
        """Close sessions that another publisher left open when it died."""
        async with self.fleet.opened():
            await self.fleet.attempt("start", self.fleet.replicas, _abort)

    async def _brought(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        run, fleet = self.fleet.run, self.fleet
        await run("pause", fleet.in_state("ready"), _pause, then="updating")
        await run("start", fleet.in_state("updating"), _start)
        named = checkpoint_params(params, lora_scaling=self._lora_scaling, keep=self._keep)
        chunks = packed(named, chunk_bytes=self._chunk_bytes, alignment=self._wire.alignment)
        for chunk, is_last in with_last(chunks):
            with self._wire.announced(chunk, is_last=is_last) as update_info:
                await run("update", fleet.in_state("updating"), self._sent(chunk, update_info))
        await run("finish", fleet.in_state("updating"), _finish(version))
        stamp(self._clients, version, fleet.in_state("updating"))
        await run("resume", fleet.in_state("updating"), _resume, then="ready")

    async def _connect(self, replica: Replica, server: ControlClient) -> None:
        if replica.error and SESSION_OPEN not in replica.error:
            # It may still be in the session that failed.
            await server.abort()
        limit_s = self.fleet.limits.connect
        self._sends[replica.url] = await self._wire.connect(server, limit_s=limit_s)
        replica.error, replica.version = "", None

    def _sent(self, chunk: Chunk, update_info: Mapping[str, Any]) -> Call:
        async def sent(replica: Replica, server: ControlClient) -> None:
            send = self._sends[replica.url]
            await met(server.update(update_info), lambda: send(chunk.buffer))

        return sent

    async def _given_up(self) -> None:
        """Let servers that still have whole params go on with them."""
        whole = [
            replica
            for replica in self.fleet.in_state("updating", "failed")
            # What another publisher is at is not ours to end; who failed to put params in may
            # have a mixture of old and new ones, and has to stay silent.
            if replica.phase != "finish" or replica.state == "updating"
            if SESSION_OPEN not in replica.error
        ]
        await self.fleet.attempt("start", whole, _abort)
        await self.fleet.attempt("resume", whole, _resume)
        for replica in self.fleet.in_state("updating"):
            replica.state = "ready"


def with_last(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, bool]]:
    """Each chunk, and whether it is the last one."""
    held = next(chunks, None)
    while held is not None:
        after = next(chunks, None)
        yield held, after is None
        held = after


def stamp(clients: Sequence[Stamping], version: int, replicas: Sequence[Replica]) -> None:
    """Tell clients the version, before any request goes on, and which servers have it."""
    for client in clients:
        client.use([replica.url for replica in replicas])
        client.policy_version = version


async def _pause(replica: Replica, server: ControlClient) -> None:
    await server.pause()


async def _start(replica: Replica, server: ControlClient) -> None:
    try:
        await server.start()
    except PublishError as error:
        if SESSION_OPEN not in str(error):
            raise
        raise PublishError(
            f"{error}; another publisher is at it. If it died in the middle, call take_over()"
        ) from error


def _finish(version: int) -> Call:
    async def finish(replica: Replica, server: ControlClient) -> None:
        await server.finish(version)
        replica.version = version

    return finish


async def _resume(replica: Replica, server: ControlClient) -> None:
    await server.resume()


async def _abort(replica: Replica, server: ControlClient) -> None:
    await server.abort()
