"""Pushes of params to running vLLM servers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.choice import CARDS, Choice, chosen, has_room, wire_of
from ludic_train.cluster.publish.control import SESSION_OPEN, PhaseLimits
from ludic_train.cluster.publish.fleet import Fleet, OnFailure, Replica
from ludic_train.cluster.publish.outgoing import outgoing
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import Send, Wire, met
from ludic_train.errors import PublishError
from ludic_train.models.checkpoint_names import (
    adapted_params,
    adapters_alone,
    checkpoint_params,
    has_expert_adapters,
)
from ludic_train.models.modules import is_adapted
from ludic_train.sources.publisher import Stamping
from ludic_vllm.cards import own_peer
from ludic_vllm.merging import base_sum
from ludic_vllm.peers import Peer
from ludic_vllm.wire import Chunk, packed

# Bytes. Memory of a push beside the model; larger chunks save few requests.
CHUNK_BYTES = 256 * 2**20
# Seconds between two requests about params that are being prepared.
POLL_S = 0.05
# Ends the transfer: the server responds when all params have arrived and fit.
LAST = {"last": True}


class VLLMPublisher:
    """Pushes params to vLLM servers, which sample meanwhile and pause for the swap alone.

    urls: of the servers, started with `ludic serve`.
    wire: transport of the params; None takes the fastest that all servers can: CUDA IPC on one
        card, NCCL between cards, shared memory on one machine, else TCP. The log names it.
    clients: get each version, and the servers that have it.
    on_failure, limits: handling of a server that fails, and time limits of each phase.
    model: the one that is trained; params go out under the names that its checkpoint has, adapters
        merged. None for a model of the same names in memory, without adapters.
    device: that params are sent from; None takes that of `model`.
    dtype: that the trainer computes in, such as "bfloat16": of a server that computes in another
        one the log has a warning. "auto" for none.
    pause_s: seconds of the last publication between the first pause and the last resume.

    Of a model with LoRA, adapters alone go out from the second publication on, to vLLM servers that
    were started from its base: these merge them, in float32, while they sample.
    Params of 32 bits go out in 16 where all servers compute in these; none with NaN goes out.
    All servers receive a version before any uses it: where one fails and `on_failure` is "stop",
    every server still has the version before. A server that failed is connected again, and gets
    all params, at the next publication.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        wire: Wire | None = None,
        *,
        clients: Sequence[Stamping] = (),
        on_failure: OnFailure = "stop",
        limits: PhaseLimits | None = None,
        model: nn.Module | None = None,
        device: torch.device | str | None = None,
        dtype: str = "auto",
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        if chunk_bytes < 1:
            raise ConfigError(f"chunk_bytes={chunk_bytes} must be at least 1")
        self.fleet = Fleet(urls, clients, on_failure, limits)
        self._wire = wire or TcpWire()
        # None where the wire is given.
        self._choice = None if wire else Choice("tcp")
        self._peers: dict[str, list[Peer] | None] = {}
        # The first failure to connect cards.
        self._no_cards = ""
        self._model = model
        params = iter(()) if model is None else model.parameters()
        self._device = torch.device(device or next((p.device for p in params), "cpu"))
        self._dtype, self._chunk_bytes = dtype, chunk_bytes
        self._sends: dict[str, Send] = {}
        self._dtypes: dict[str, str] = {}
        # Name in the checkpoint, and rank, of each adapted param; None where servers cannot merge.
        self._adapters: dict[str, tuple[str, int]] | None = None
        if is_adapted(model) and not has_expert_adapters(model):
            self._adapters = adapted_params(model)
        self._bases: dict[str, int] = {}
        # Servers to which adapters can go alone.
        self._merging: set[str] = set()
        self.pause_s = 0.0

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        Raises PublishError with the servers and phases that failed.
        """
        async with aclosing(self.fleet):
            await self._connect_all()
            try:
                await self._push(params, version)
            except BaseException:
                await self._roll_back()
                # Params that are sharded over ranks need every rank to read them to the end.
                for _ in params:
                    pass
                raise
            finally:
                self._wire.release(swapped=True)

    async def take_over(self) -> None:
        """Close sessions that another publisher left open when it died.

        Servers without an open session are unchanged. A publisher that still runs loses its update.
        """
        async with aclosing(self.fleet):
            await self.fleet.attempt("start", self.fleet.replicas, lambda r: r.server.abort())

    async def _push(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Run all phases, from "start" to "resume", on the servers that are ready."""
        # Each phase ends on all servers before the next one begins on any, so that until "finish"
        # a failure anywhere leaves every server with its whole old version.
        run, fleet = self.fleet.run, self.fleet
        if not self._wire.stages:
            await self._pause()
        joining = fleet.in_state("ready", "updating")
        await run("start", joining, lambda r: r.server.start(), then="updating")
        alone = self._adapters is not None and all(r.url in self._merging for r in joining)
        if alone:
            ranks = {"adapters": dict((self._adapters or {}).values())}
            await run("update", fleet.in_state("updating"), lambda r: r.server.update(ranks))
        for chunk in self._chunks(params, alone=alone):
            updating = fleet.in_state("updating")
            announced = self._wire.announced(chunk, [r.url for r in updating])
            await run("update", updating, partial(self._send, chunk=chunk, announced=announced))
            self._wire.release(swapped=False)
        if self._wire.stages:
            if self._adapters is not None and not alone:
                await self._compare_bases()
            elif not self._wire.reports:
                # By short requests: one that waits would hold the decoding steps up.
                await run("update", fleet.in_state("updating"), _until_settled)
            # Here and not in "finish": a server that has not received all must be found before
            # another one swaps.
            await run("update", fleet.in_state("updating"), lambda r: r.server.update(LAST))
            await self._pause()

        async def finish(replica: Replica) -> None:
            await replica.server.finish(version)
            replica.version = version

        await run("finish", fleet.in_state("updating"), finish)
        # Before "resume": the first completion of the new params must carry their version.
        fleet.stamp(version, "updating")
        updating = fleet.in_state("updating")
        await run("resume", updating, lambda r: r.server.resume(), then="ready")
        self.pause_s = time.perf_counter() - self._paused

    async def _compare_bases(self) -> None:
        """Have servers say if adapters can come alone from the next publication on."""
        all_known = self._bases.keys() == {own for own, _ in (self._adapters or {}).values()}
        bases = {"bases": self._bases}

        async def compare(replica: Replica) -> None:
            server = replica.server
            if all_known and await server.merges() is not None:
                await server.update(bases)
            await _until_settled(replica)
            if await server.merges():
                self._merging.add(replica.url)

        await self.fleet.run("update", self.fleet.in_state("updating"), compare)

    def _chunks(self, params: Iterable[tuple[str, Tensor]], *, alone: bool) -> Iterator[Chunk]:
        """The params under the names and in the type of the servers, in buffers of the wire.

        alone: adapters in float32, and nothing else.
        """
        dtypes = {self._dtypes.get(r.url) for r in self.fleet.in_state("updating")}
        dtype = dtypes.pop() if len(dtypes) == 1 and not alone else None
        if alone and is_adapted(self._model):
            named = adapters_alone(params, self._model)
        else:
            named = checkpoint_params(self._noted(params), self._model)
        return packed(
            outgoing(named, dtype, self._model),
            chunk_bytes=self._chunk_bytes,
            alignment=self._wire.alignment,
            allocate=self._wire.allocated,
        )

    def _noted(self, params: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """The params; checksums of those under adapters are noted."""
        for name, param in params:
            if self._adapters is not None and name in self._adapters:
                own, _ = self._adapters[name]
                # They are frozen.
                if own not in self._bases:
                    self._bases[own] = base_sum(param)
            yield name, param

    async def _pause(self) -> None:
        self._paused = time.perf_counter()
        pausing = self.fleet.in_state("ready", "updating")
        await self.fleet.run("pause", pausing, lambda r: r.server.pause(), then="updating")

    async def _connect_all(self) -> None:
        """Connect the servers that are not, by another wire if they cannot by one of cards."""
        joining = self.fleet.in_state("new", "failed")
        if joining and self._choice is not None:
            joining = await self._chosen(joining)
        try:
            await self.fleet.run("connect", joining, self._connect, then="ready")
        except PublishError:
            if not self._by_cards:
                raise
        if self._by_cards and (failed := self.fleet.in_state("failed")):
            self._no_cards = failed[0].describe()
            await self.fleet.run("connect", await self._chosen(failed), self._connect, then="ready")

    @property
    def _by_cards(self) -> bool:
        """True if a transport between cards was chosen, which others can take the place of."""
        return self._choice is not None and self._choice.transport in CARDS

    async def _chosen(self, joining: list[Replica]) -> list[Replica]:
        """Take the wire that suits all servers; those to connect, all of them for another wire."""
        found = await asyncio.gather(*(replica.server.peers() for replica in joining))
        self._peers |= {replica.url: peers for replica, peers in zip(joining, found, strict=True)}
        workers = {replica.url: self._peers.get(replica.url) for replica in self.fleet.replicas}
        # Once it is chosen, its memory is held.
        holds = self._choice is not None and self._choice.transport == "files"
        room = holds or has_room(self._model, 2 * self._chunk_bytes)
        choice = chosen(own_peer(self._device), workers, has_room=room, refused=self._no_cards)
        if choice == self._choice:
            return joining
        level = logging.WARNING if choice.reason else logging.INFO
        logging.getLogger(__name__).log(level, "%s", choice.describe())
        self._choice, self._wire = choice, wire_of(choice, self._device)
        return self.fleet.replicas

    async def _connect(self, replica: Replica) -> None:
        """Connect one server by the wire, and close a session that it may still have."""
        if replica.error and SESSION_OPEN not in replica.error:
            # It may still be in the session that failed.
            await replica.server.abort()
        # It may be another process than before.
        self._merging.discard(replica.url)
        limit_s = self.fleet.limits.connect
        self._sends[replica.url] = await self._wire.connect(replica.server, limit_s=limit_s)
        self._dtypes[replica.url] = found = await replica.server.dtype()
        if self._dtype != "auto" and found not in ("", self._dtype):
            logging.getLogger(__name__).warning(
                "%s computes in %s, and the trainer in %s: updates too small for bfloat16 change "
                "one of them alone; serve in the trainer's type (ludic serve --dtype %s), or train "
                "in that of the server",
                *(replica.url, found, self._dtype, self._dtype),
            )
        replica.connected()

    async def _send(
        self, replica: Replica, *, chunk: Chunk, announced: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Send one chunk to one server, while its request announces it."""
        send = self._sends[replica.url]
        await met(replica.server.update(announced[replica.url]), lambda: send(chunk.buffer))

    async def _roll_back(self) -> None:
        """Resume the servers that still have whole params."""
        mixing = ("finish",) if self._wire.stages else ("update", "finish")
        whole = [
            replica
            for replica in self.fleet.in_state("updating", "failed")
            # A session of another publisher is not ours to end. A server that failed in "finish"
            # may have a mixture of old and new params, and must stay paused.
            if replica.phase not in mixing or replica.state == "updating"
            if SESSION_OPEN not in replica.error
        ]
        # Cancelled before the response: the server may be paused, or have opened the session.
        whole += [r for r in self.fleet.in_state("ready") if r.phase in ("pause", "start")]
        await self.fleet.attempt("start", whole, lambda r: r.server.abort())
        await self.fleet.attempt("resume", whole, lambda r: r.server.resume())
        for replica in self.fleet.in_state("updating"):
            replica.state = "ready"


async def _until_settled(replica: Replica) -> None:
    """Wait until the server's workers have taken all params that were announced."""
    while not await replica.server.is_settled():
        await asyncio.sleep(POLL_S)
