"""vLLM's own transport between GPUs, without vLLM.

vLLM's workers join by an ncclUniqueId that torch makes, and start with an all-reduce of one
element; then every chunk is one broadcast, its params one after the other without gaps.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.transports import Send, announcement, in_thread, met
from ludic_vllm.wire import Chunk, broadcast, open_store

# Key under which torch's NCCL group stores the id of its first communicator.
UNIQUE_ID_KEY = "0"
NUM_BUFFERS = 2


class NcclWire:
    """NCCL between GPUs, to servers started with `--transfer nccl`.

    device: the GPU that this process sends from.
    buffer_bytes: at least the publisher's `chunk_bytes`, because a chunk must not be cut in two.
    A server that fails during a transfer has a mixture of versions, and must be started again.
    Raises ConfigError without a GPU.
    """

    alignment = 1
    # vLLM's engine loads while it receives.
    stages, reports = False, True

    def __init__(self, device: str = "cuda:0", *, buffer_bytes: int = 2**30) -> None:
        if not torch.cuda.is_available():
            raise ConfigError("NcclWire needs a GPU; TcpWire and FileWire work without")
        self._device = torch.device(device)
        self._buffer_bytes = buffer_bytes

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Connect by a communicator of this process (rank 0) and the server's workers.

        Raises PublishError if they do not all join within `limit_s` seconds.
        """
        world_size = 1 + await server.world_size()
        # Local, because workers get the id that torch puts into it by HTTP.
        store = open_store("127.0.0.1", timeout_s=limit_s)

        def join() -> Send:
            torch.cuda.set_device(self._device)
            group = _nccl_group(store, world_size, limit_s)
            # vLLM's communicator does this when it is made; without it both sides block.
            group.allreduce([torch.zeros(1, device=self._device)]).wait()
            torch.cuda.synchronize(self._device)

            def send(buffer: torch.Tensor) -> None:
                # Each call is in a new thread, and the current device belongs to the thread.
                torch.cuda.set_device(self._device)
                broadcast(group, buffer.to(self._device))
                torch.cuda.synchronize(self._device)

            return send

        async def announce() -> None:
            unique_id = await in_thread(lambda: store.get(UNIQUE_ID_KEY))
            await server.connect(nccl_init_info(unique_id, world_size, self._buffer_bytes))

        return await met(announce(), join)

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """Memory of the device that the params are on."""
        return torch.empty(size, dtype=torch.uint8, device=device)

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Names, dtypes and shapes. Raises ConfigError for a chunk larger than the buffer."""
        if chunk.buffer.numel() > self._buffer_bytes and len(chunk.infos) > 1:
            raise ConfigError(
                f"a chunk of {chunk.buffer.numel()} bytes exceeds buffer_bytes="
                f"{self._buffer_bytes}; give the publisher that much as chunk_bytes"
            )
        return dict.fromkeys(urls, announcement(chunk))

    def release(self, *, swapped: bool) -> None:
        """Nothing: a chunk's buffer is the only memory."""


def _nccl_group(store: Store, world_size: int, limit_s: float) -> Any:  # noqa: ANN401
    """A group apart from torch's default one; torch's annotations do not cover it."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=limit_s)
    return dist.ProcessGroupNCCL(store, 0, world_size, options)


def nccl_init_info(unique_id: bytes, world_size: int, buffer_bytes: int) -> dict[str, Any]:
    """init_info of vLLM's NCCL engine, by which its workers join rank 0.

    unique_id: of the communicator. world_size: this process and all workers.
    buffer_bytes: size of the buffers that the stream of params is cut into.
    """
    return {
        "nccl_unique_id_b64": base64.b64encode(unique_id).decode(),
        "rank_offset": 1,
        "world_size": world_size,
        "packed": True,
        "packed_buffer_size_bytes": buffer_bytes,
        "packed_num_buffers": NUM_BUFFERS,
    }
