"""Params in packed buffers, and the process group that broadcasts them.

Both ends import this file: the trainer and vLLM's workers. It needs torch alone.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

# Bytes. Every tensor begins at a multiple of it, so that any dtype can be viewed in place.
ALIGNMENT = 64
# Names that an error message lists.
FEW = 4
# Bytes of a word of a checksum.
WORD = 8
# Bytes from which memory is taken in huge pages; a multiple of their size, 2 MiB on most machines.
HUGE = 2**22
# Memory for the buffer of a chunk, uint8 [bytes], of a size and on a device.
Allocate = Callable[[int, torch.device], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamInfo:
    """Format of a param. dtype: its name in torch, such as "float32"."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of its values."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype.itemsize * torch.Size(self.shape).numel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some params, one after the other. buffer: uint8 [bytes]."""

    infos: tuple[ParamInfo, ...]
    buffer: Tensor


def info_of(name: str, tensor: Tensor) -> ParamInfo:
    """Name, dtype and shape of a param."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ParamInfo(name=name, dtype=dtype, shape=tuple(tensor.shape))


def packed(
    params: Iterable[tuple[str, Tensor]],
    *,
    chunk_bytes: int,
    alignment: int = ALIGNMENT,
    allocate: Allocate | None = None,
) -> Iterator[Chunk]:
    """The params in order, in chunks of at most `chunk_bytes`; a larger param is one by itself.

    alignment: in bytes; each param begins at a multiple of it.
    allocate: makes the buffers; None takes new memory on the params' device.
    The buffers are copies: the params may change afterwards.
    """
    make = allocate or _on_device
    held: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in params:
        own = _aligned(info_of(name, tensor).num_bytes, alignment)
        if held and size + own > chunk_bytes:
            yield _packed(held, make(size, held[0][1].device), alignment)
            held, size = [], 0
        held.append((name, tensor))
        size += own
    if held:
        yield _packed(held, make(size, held[0][1].device), alignment)


def unpacked(
    infos: Sequence[ParamInfo], buffer: Tensor, *, alignment: int = ALIGNMENT
) -> Iterator[tuple[str, Tensor]]:
    """The params of a chunk, as views of its buffer.

    infos, alignment: as the buffer was packed. buffer: uint8 [bytes].
    """
    start = 0
    for info in infos:
        flat = buffer[start : start + info.num_bytes]
        yield info.name, flat.view(getattr(torch, info.dtype)).view(info.shape)
        start += _aligned(info.num_bytes, alignment)


def buffer_bytes(infos: Iterable[ParamInfo], *, alignment: int = ALIGNMENT) -> int:
    """Size in bytes of the buffer of a chunk that holds these params, gaps included."""
    return sum(_aligned(info.num_bytes, alignment) for info in infos)


def checksum(buffer: Tensor) -> int:
    """Sum of the words of 64 bits in a buffer, modulo 2**64 and signed.

    buffer: uint8 [bytes], on any device; bytes after the last whole word count one by one.
    Finds lost, zeroed or older bytes at the speed of memory; it is no protection against forgery.
    """
    whole = buffer.numel() // WORD * WORD
    words, rest = buffer[:whole].view(torch.int64), buffer[whole:]
    # Integer sums wrap around, equally on every device.
    return int(words.sum() + rest.sum(dtype=torch.int64))


def mapped(path: str, num_bytes: int) -> Tensor:
    """The content of a file as a buffer, uint8 [bytes], which shares its pages with all readers.

    The file may be removed meanwhile on a local file system; it must not be cut.
    Raises ValueError for a file of another size, OSError for one that cannot be read.
    """
    found = os.stat(path).st_size
    if found != num_bytes:
        raise ValueError(f"{path} has {found} bytes, announced were {num_bytes}")
    if not num_bytes:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(path, shared=False, size=num_bytes, dtype=torch.uint8)


def copy_bytes(target: Tensor, source: Tensor) -> None:
    """Copy a buffer to another one of its size, uint8 [bytes], each on any device."""
    if target.device.type == source.device.type == "cpu":
        # By memcpy, which needs two thirds of the time of torch's own copy.
        target.numpy().data[:] = source.numpy().data
    else:
        target.copy_(source)


def few(names: Iterable[str]) -> str:
    """The first names of a list for an error message, and the number of the others."""
    known = list(names)
    more = f" and {len(known) - FEW} more" if len(known) > FEW else ""
    return ", ".join(known[:FEW]) + more


def open_store(host: str, *, timeout_s: float) -> TCPStore:
    """A store of this process on a free port, `.port`, by which a group is formed.

    host: address to listen on, which the workers must reach. timeout_s: limit of each access.
    """
    # Not waiting for workers: they join after the request that has the port, which is made next.
    return TCPStore(
        host, 0, is_master=True, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )


def broadcast(group: dist.ProcessGroup, buffer: Tensor) -> None:
    """Send `buffer` on rank 0, receive into it elsewhere. Raises RuntimeError for a lost peer."""
    options = dist.BroadcastOptions()
    # The trainer is rank 0 in every group.
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([buffer], options).wait()


def host_memory(size: int) -> Tensor:
    """New memory of the host, uint8 [size], in huge pages where the system has them."""
    # The kernel clears new memory page by page when it is first written. With pages of 4 KiB that
    # takes several times as long as the copy that fills them.
    if sys.platform != "linux" or size < HUGE:
        return torch.empty(size, dtype=torch.uint8)
    # Linux aligns memory of whole huge pages alone.
    whole = _aligned(size, HUGE)
    area = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel that was built without them refuses.
    with suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=torch.uint8)[:size]


def captures(function: object, tensor: Tensor) -> bool:
    """True if a closure holds a tensor in the same memory."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    memory = tensor.untyped_storage().data_ptr()
    return any(isinstance(c, Tensor) and c.untyped_storage().data_ptr() == memory for c in cells)


def _on_device(size: int, device: torch.device) -> Tensor:
    """New memory of a size in bytes."""
    if device.type == "cpu":
        return host_memory(size)
    return torch.empty(size, dtype=torch.uint8, device=device)


def _packed(held: Sequence[tuple[str, Tensor]], buffer: Tensor, alignment: int) -> Chunk:
    """One chunk of these params in the buffer, which has its size, gaps included."""
    start = 0
    for _, tensor in held:
        # A copy only where the param is not contiguous. As bytes, because a chunk holds params of
        # several dtypes.
        flat = tensor.detach().reshape(-1).view(torch.uint8)
        end = start + len(flat)
        copy_bytes(buffer[start:end], flat)
        start += _aligned(len(flat), alignment)
        # Memory that was never written is part of the checksum, and of a file that others read.
        buffer[end:start].zero_()
    return Chunk(infos=tuple(info_of(name, tensor) for name, tensor in held), buffer=buffer)


def _aligned(num_bytes: int, alignment: int) -> int:
    """The size rounded up to a multiple of the alignment."""
    return -(-num_bytes // alignment) * alignment
