"""Params from card to card, to the engine of `ludic_vllm`, which stages them while it samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_vllm.cards import group_of, shared_fields
from ludic_vllm.wire import Chunk, broadcast, open_store


class GroupWire(TcpWire):
    """A broadcast to each server's workers: NCCL from a card to other cards, gloo between CPUs.

    device: card that this process sends from, "cuda:0" for example, or "cpu".
    host: as of TcpWire; over its connections the workers report.
    NCCL wants one process per card, and the same version on both sides.
    Raises ConfigError for a card where there is none.
    """

    def __init__(self, device: str | torch.device = "cuda", host: str | None = None) -> None:
        super().__init__(host)
        self._device = _card(device)
        self._groups: dict[str, dist.ProcessGroup] = {}

    def group(
        self, url: str, host: str, size: int, limit_s: float
    ) -> tuple[dict[str, Any], Callable[[], None]]:
        """A group of this process and the workers."""
        # One per server, because a lost member ends it.
        store = open_store(host, timeout_s=limit_s)

        def enter() -> None:
            self._groups[url] = group_of(store, 0, 1 + size, device=self._device, timeout_s=limit_s)

        return {"group": [host, store.port, 1 + size]}, enter

    def transmit(self, url: str, buffer: Tensor) -> None:
        """Broadcast a chunk. Raises RuntimeError for a lost worker."""
        if self._device.type == "cuda":
            # The current device belongs to the thread, and each chunk has a new one.
            torch.cuda.set_device(self._device)
        broadcast(self._groups[url], buffer)

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """Memory of the card that sends."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Names, dtypes, shapes and checksum; the buffer itself goes through the group."""
        return dict.fromkeys(urls, self.common(chunk))


class IpcWire(TcpWire):
    """Handles of this process's memory on the card that the servers compute on as well.

    device: the card. The handles go by the control routes, as plain fields. host: as of TcpWire.
    A chunk is overwritten by the next one when all workers have copied it.
    Raises ConfigError for a card where there is none.
    """

    def __init__(self, device: str | torch.device = "cuda", host: str | None = None) -> None:
        super().__init__(host)
        self._device = _card(device)
        if self._device.type != "cuda":
            raise ConfigError(f"IpcWire({device!r}) is for cards; FileWire shares memory of a CPU")
        self._buffer: Tensor | None = None

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """Memory of the card; the same one for all chunks, because opening a handle takes long."""
        if self._buffer is None or len(self._buffer) < size:
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._buffer[:size]

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Names, dtypes, shapes, checksum, and a handle for each server."""
        common = self.common(chunk)
        # All that was packed must be in the memory before others read it.
        torch.cuda.current_stream(self._device).synchronize()
        # A handle counts one reader.
        return {url: {**common, "shared": shared_fields(chunk.buffer)} for url in urls}


def _card(device: str | torch.device) -> torch.device:
    """The device with its number. Raises ConfigError for a card where there is none."""
    found = torch.device(device)
    if found.type != "cuda":
        return found
    if not torch.cuda.is_available():
        raise ConfigError(f"{device!r} is no device here: TcpWire and FileWire need no card")
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)
