"""The processes that train together: who they are, and how bytes get from one to the others.

Started by torchrun, each process is a rank of torch.distributed's default group. Without one there
is rank 0 of 1, and nothing here communicates. What travels is JSON or arrays, never a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ludic_train.errors import RankError

Part = TypeVar("Part")
_DATA, _ERROR = b"d", b"e"


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def scattered(
    make: Callable[[], Sequence[Part]],
    encode: Callable[[Part], bytes],
    decode: Callable[[bytes], Part],
) -> Part:
    """This rank's part of what `make` returns; only rank 0 calls `make`.

    What `make` raises is raised on every rank, as RankError on the others, so none waits for ever.
    """
    if world_size() == 1:
        (part,) = make()
        return part
    if rank() != 0:
        return decode(_received())
    try:
        parts = make()
    except Exception as error:
        _send([_ERROR + f"{type(error).__name__}: {error}".encode()] * world_size())
        raise
    _send([_DATA + encode(part) for part in parts])
    return parts[0]


def on_rank_0(action: Callable[[], object]) -> None:
    """Do it on rank 0 while the others wait.

    What it raises is raised on every rank, as RankError on the others.
    """

    def done() -> list[bytes]:
        action()
        return [b""] * world_size()

    scattered(done, bytes, bytes)


def gathered(own: bytes) -> list[bytes]:
    """What every rank gave, in the order of ranks, on every rank."""
    if world_size() == 1:
        return [own]
    sizes = [_number(0) for _ in range(world_size())]
    dist.all_gather(sizes, _number(len(own)))
    longest = max(int(size) for size in sizes)
    buffers = [_bytes_tensor(b"", longest) for _ in sizes]
    dist.all_gather(buffers, _bytes_tensor(own, longest))
    return [_bytes(buffer, int(size)) for buffer, size in zip(buffers, sizes, strict=True)]


def add_up_gradients(params: Sequence[nn.Parameter]) -> None:
    """Replace the gradients of replicated params by their sums over the ranks."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for param, part in zip(params, parts, strict=True):
        param.grad = part.view_as(param)


def copy_from_rank_0(params: Sequence[Tensor]) -> None:
    """Give replicated params the values that they have on rank 0."""
    for param in params:
        dist.broadcast(param.detach(), 0)


def _send(messages: Sequence[bytes]) -> None:
    longest = max(map(len, messages))
    dist.broadcast(_number(longest), 0)
    sizes = [_number(len(message)) for message in messages]
    dist.scatter(_number(0), sizes, 0)
    padded = [_bytes_tensor(message, longest) for message in messages]
    dist.scatter(_bytes_tensor(b"", longest), padded, 0)


def _received() -> bytes:
    longest, size = _number(0), _number(0)
    dist.broadcast(longest, 0)
    dist.scatter(size, None, 0)
    buffer = _bytes_tensor(b"", int(longest))
    dist.scatter(buffer, None, 0)
    message = _bytes(buffer, int(size))
    if message[:1] == _ERROR:
        raise RankError(f"rank 0 failed: {message[1:].decode()}")
    return message[1:]


def _number(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int64, device=_device())


def _bytes_tensor(message: bytes, size: int) -> Tensor:
    padded = bytearray(message.ljust(max(size, 1), b"\0"))
    return torch.frombuffer(padded, dtype=torch.uint8).to(_device())


def _bytes(buffer: Tensor, size: int) -> bytes:
    return bytes(buffer.cpu().numpy()[:size])


def _device() -> str:
    """Where the default group's messages live: NCCL moves CUDA tensors only."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"
