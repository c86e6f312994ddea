"""Buffers between cards: by a group (NCCL, or gloo on CPUs), and by CUDA's handles on one card.

Both ends import this file: the trainer and vLLM's workers. It needs torch alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore

from ludic_vllm.peers import Peer
from ludic_vllm.wire import broadcast, host_memory

BOOT = Path("/proc/sys/kernel/random/boot_id")
SHARED_MEMORY = Path("/dev/shm")
# Fields of CUDA's handle of a buffer, in the order of torch's `_share_cuda_`, without its first,
# which is the number of the card in the process that made it.
FIELDS = (
    "handle",
    "size",
    "offset",
    "counter",
    "counter_offset",
    "event",
    "must_wait",
)
IN_BYTES = ("handle", "counter", "event")
# torch takes no int for a bool.
KINDS: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(IN_BYTES, bytes.fromhex),
    "must_wait": bool,
}


def own_peer(device: torch.device) -> Peer:
    """This process, where it computes on the device."""
    # Containers of a machine have its boot id. Most have names of their own; those with the name of
    # the machine may have shared memory of their own, which is another device.
    parts = [socket.gethostname()]
    parts += [BOOT.read_text().strip()] if BOOT.exists() else []
    parts += [str(SHARED_MEMORY.stat().st_dev)] if SHARED_MEMORY.exists() else []
    host = " ".join(parts)
    if device.type != "cuda":
        return Peer(host=host)
    card = str(torch.cuda.get_device_properties(device).uuid)
    return Peer(host=host, card=card, nccl=_nccl())


def _nccl() -> tuple[int, ...]:
    return tuple(torch.cuda.nccl.version())  # type: ignore[no-untyped-call]


def joined_store(host: str, port: int, timeout_s: float) -> TCPStore:
    """The store that another process has opened. Raises RuntimeError if it cannot be reached."""
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def group_of(
    store: Store, rank: int, size: int, *, device: torch.device, timeout_s: float
) -> dist.ProcessGroup:
    """A group apart from torch's default one: NCCL for cards, gloo for CPUs.

    Every operation raises RuntimeError after `timeout_s`. Raises RuntimeError if not all join.
    """
    limit = timedelta(seconds=timeout_s)
    # torch's annotations do not make these two a group.
    group: Any
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = limit
        torch.cuda.set_device(device)
        with _blocking_wait():
            group = dist.ProcessGroupNCCL(store, rank, size, options)
    else:
        group = dist.ProcessGroupGloo(store, rank, size, limit)
    # Makes the connections now, so that a peer without a route is found here.
    group.allreduce([torch.zeros(1, device=device)]).wait()
    return cast(dist.ProcessGroup, group)


@contextmanager
def _blocking_wait() -> Iterator[None]:
    """A setting of NCCL groups that are made in the block: a lost peer is an error of a wait.

    Without it torch ends the whole process when a group's time is over.
    """
    name = "TORCH_NCCL_BLOCKING_WAIT"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def received(group: dist.ProcessGroup, num_bytes: int, device: torch.device) -> Tensor:
    """The buffer that rank 0 of the group broadcasts, uint8 [num_bytes], in the host's memory."""
    if device.type != "cuda":
        buffer = host_memory(num_bytes)
        broadcast(group, buffer)
        return buffer
    torch.cuda.set_device(device)
    # Not the stream on which the server samples, which would wait for the trainer.
    with torch.cuda.stream(_stream(device)):
        buffer = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        broadcast(group, buffer)
        return on_host(buffer)


def on_host(buffer: Tensor) -> Tensor:
    """A copy of a card's buffer in the host's memory, once the current stream has made it."""
    copy = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
    copy.copy_(buffer, non_blocking=True)
    torch.cuda.current_stream(buffer.device).synchronize()
    return copy


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def shared_fields(buffer: Tensor) -> dict[str, Any]:
    """CUDA's handle of a buffer that begins its memory, as JSON."""
    storage: Any = buffer.untyped_storage()
    return handle_fields(storage._share_cuda_()[1:])


def opened(fields: Mapping[str, Any], num_bytes: int, device: torch.device) -> Tensor:
    """A copy in the host's memory of the buffer of another process on the same card.

    fields: of `shared_fields`. Raises ValueError for other fields, RuntimeError for a handle that
    this process cannot open.
    """
    torch.cuda.set_device(device)
    parts = handle_parts(fields)
    with torch.cuda.stream(_stream(device)):
        storage = torch.UntypedStorage._new_shared_cuda(device.index, *parts)
        buffer = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        return on_host(buffer[:num_bytes])


def handle_fields(parts: tuple[Any, ...]) -> dict[str, Any]:
    """Parts of a handle by name, bytes in hexadecimal."""
    named = dict(zip(FIELDS, parts, strict=True))
    return {n: v.hex() if n in IN_BYTES else v for n, v in named.items()}


def handle_parts(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts that `handle_fields` named. Raises ValueError for anything else."""
    if fields.keys() != set(FIELDS):
        raise ValueError(f"{sorted(fields)} are no fields of a handle, which has {list(FIELDS)}")
    try:
        return tuple(KINDS.get(name, int)(fields[name]) for name in FIELDS)
    except TypeError as error:
        raise ValueError(f"{dict(fields)!r:.200} is no handle: {error}") from error
