"""Params over TCP, from servers to servers."""

from __future__ import annotations

import secrets
import socket
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.transports import Send, announcement, met
from ludic_train.cluster.publish.tree import FAN_OUT, Place, tree_sources
from ludic_train.errors import PublishError
from ludic_vllm.receiver import Trainer, own_address
from ludic_vllm.relay import Address, Arriving, Key
from ludic_vllm.wire import Chunk, checksum, host_memory

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Server:
    """Numbers of a server's workers, and the trainer's address as they see it."""

    members: range
    trainer: Address


class TcpWire:
    """TCP to servers on any machine, which pass the params on to each other.

    host: this machine's address as the servers see it; None determines it from the route.
    fan_out: machines that fetch from this one, and from each of them. Servers on this machine
        fetch from this process.
    Chunks are passed on while they arrive. A server that is lost costs time alone: those that
    fetched from it continue with its own source, at last with this process.
    A chunk is overwritten by the next one when all servers have it.
    Raises ConfigError for a fan_out below 1.
    """

    alignment = 64
    stages, reports = True, True

    def __init__(self, host: str | None = None, *, fan_out: int = FAN_OUT) -> None:
        if fan_out < 1:
            raise ConfigError(f"fan_out={fan_out} must be at least 1")
        self._host, self._fan_out = host, fan_out
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._relay = Trainer(self._secret)
        weakref.finalize(self, self._relay.close)
        self._ports: dict[str, int] = {}
        self._servers: dict[str, _Server] = {}
        self._numbers = count()
        self._key: Key = (secrets.token_hex(8), -1)
        self._memory: Tensor | None = None

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Connect to the server's workers, which learn the secret of this process.

        Raises PublishError if they do not all connect within `limit_s` seconds.
        """
        host = socket.gethostbyname(self._host) if self._host else _route_to(server.url)
        if host not in self._ports:
            self._ports[host] = self._relay.listen(host)
        trainer = (host, self._ports[host])
        size = await server.world_size()
        members = range(first := next(self._numbers), first + size)
        self._numbers = count(members.stop)
        further, enter = self.group(server.url, host, size, limit_s)
        init_info = {
            "transport": "tcp",
            "trainer": trainer,
            "secret": self._secret.hex(),
            "first_member": members.start,
            "timeout_s": limit_s,
            **further,
        }

        def join() -> None:
            missing = size - len(self._relay.members(members, limit_s))
            if missing:
                raise PublishError(f"{missing} of {size} workers did not connect to {host}")
            enter()

        await met(server.connect(init_info), join)
        self._servers[server.url] = _Server(members, trainer)

        def send(buffer: Tensor) -> None:
            self.transmit(server.url, buffer)
            self._relay.wait(self._key, members, limit_s)

        return send

    def group(
        self, url: str, host: str, size: int, limit_s: float
    ) -> tuple[dict[str, Any], Callable[[], None]]:
        """Fields that a server's workers need beside the address, and a call while they connect.

        url, size: of the server. host: this machine's address as the server sees it.
        """
        return {}, lambda: None

    def transmit(self, url: str, buffer: Tensor) -> None:
        """Send a chunk to a server's workers, where they do not fetch it."""

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """Memory of the host, the same for all chunks: the kernel clears new memory."""
        if self._memory is None or len(self._memory) < size:
            self._memory = host_memory(size)
        return self._memory[:size]

    def common(self, chunk: Chunk) -> dict[str, Any]:
        """Names, dtypes, shapes, checksum, and the name of the chunk, which is the next one."""
        self._key = (self._key[0], self._key[1] + 1)
        return {
            **announcement(chunk),
            "checksum": checksum(chunk.buffer),
            "session": self._key[0],
            "index": self._key[1],
        }

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """The fields of `common`, and for each worker of a server its sources."""
        common = self.common(chunk)
        self._relay.offer(self._key, Arriving(chunk.buffer, len(chunk.buffer)))
        servers = {url: self._servers[url] for url in urls}
        places = {
            number: Place(address=address, trainer=server.trainer)
            for server in servers.values()
            for number, address in self._relay.members(server.members).items()
        }
        sources = tree_sources(places, self._fan_out)
        return {
            # A worker that is lost has no place; the server's own error tells.
            url: {**common, "sources": [sources.get(n, []) for n in server.members]}
            for url, server in servers.items()
        }

    def release(self, *, swapped: bool) -> None:
        """Drop the chunk; begin another session after a publication."""
        self._relay.drop()
        if swapped:
            self._key = (secrets.token_hex(8), -1)


def _route_to(url: str) -> str:
    """This machine's address as the server at `url` sees it. Raises OSError without a route."""
    parts = urlsplit(url)
    return own_address((parts.hostname or "127.0.0.1", parts.port or 80))
