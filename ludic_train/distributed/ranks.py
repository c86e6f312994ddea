"""The processes that train together: their numbers, and messages from one to the others.

Started by torchrun, each process is a rank of torch.distributed's default group. Without one there
is rank 0 of 1, and nothing here communicates. Messages are JSON or arrays, never a pickle.

Messages travel through a group of their own, on the CPU, that waits for days. So the other ranks
stay alive while rank 0 evaluates, saves, or waits for a server, however short the default group's
timeout is; if rank 0 dies, its connections close and they fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ludic_train.errors import RankError

T = TypeVar("T")
PATIENCE = timedelta(days=30)
_DATA, _ERROR = b"d", b"e"
_NEXT, _END = b"n", b""


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def meet() -> None:
    """Return once every rank is here; to be called before work that a timeout is waiting for."""
    if world_size() > 1:
        dist.barrier(_messages())


def scattered(
    make: Callable[[], Sequence[T]],
    encode: Callable[[T], bytes],
    decode: Callable[[bytes], T],
) -> T:
    """This rank's part of the result of `make`, which only rank 0 calls.

    An error of `make` is raised on every rank, as RankError on the others, so none waits for ever.
    """
    if world_size() == 1:
        (part,) = make()
        return part
    if rank() != 0:
        return decode(_received())
    try:
        parts = make()
    except Exception as error:
        _send_error(error)
        raise
    _send([_DATA + encode(part) for part in parts])
    return parts[0]


def on_rank_0(action: Callable[[], object]) -> None:
    """Do it on rank 0 while the others wait.

    An error is raised on every rank, as RankError on the others.
    """

    def done() -> list[bytes]:
        action()
        return [b""] * world_size()

    scattered(done, bytes, bytes)


async def awaited_on_rank_0(work: Callable[[], Awaitable[T]]) -> T | None:
    """Result of the coroutine, which only rank 0 runs while the others wait; None on the others.

    An error is raised on every rank, as RankError on the others.
    """
    if world_size() == 1:
        return await work()
    if rank() != 0:
        # In a thread, so that signals reach this process while it waits.
        await asyncio.to_thread(_received)
        return None
    try:
        result = await work()
    except BaseException as error:
        _send_error(error)
        raise
    _send([_DATA] * world_size())
    return result


class Led(Generic[T]):
    """Items that all ranks have to make together, in the pace at which rank 0 takes them.

    items: an iterator on every rank, whose `next` communicates. Rank 0 iterates over this object
    and calls `end`, also after an error; the other ranks call `follow` meanwhile. Rank 0 may wait
    between two items for as long as it likes, and may stop early.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._ended = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if world_size() > 1:
            _send([_DATA + _NEXT] * world_size())
        return next(self._items)

    def end(self, error: BaseException | None = None) -> None:
        """Let the other ranks go on; with an error, they raise RankError."""
        if self._ended or world_size() == 1:
            return
        self._ended = True
        if error is None:
            _send([_DATA + _END] * world_size())
        else:
            _send_error(error)

    def follow(self) -> None:
        """Take part in each item that rank 0 takes, until it ends. Raises RankError."""
        while _received() == _NEXT:
            next(self._items, None)


def gathered(own: bytes) -> list[bytes]:
    """The messages of all ranks, in the order of ranks, on every rank."""
    if world_size() == 1:
        return [own]
    sizes = [_number(0) for _ in range(world_size())]
    dist.all_gather(sizes, _number(len(own)), group=_messages())
    longest = max(int(size) for size in sizes)
    buffers = [_bytes_tensor(b"", longest) for _ in sizes]
    dist.all_gather(buffers, _bytes_tensor(own, longest), group=_messages())
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
    meet()
    for param in params:
        dist.broadcast(param.detach(), 0)


def _messages() -> dist.ProcessGroup:
    """The group that messages travel through; all ranks must ask for it the first time."""
    world = dist.group.WORLD
    assert world is not None
    return _made_for(world)


@lru_cache(maxsize=1)
def _made_for(world: dist.ProcessGroup) -> dist.ProcessGroup:
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE)
    return group


def _send(messages: Sequence[bytes]) -> None:
    longest = max(map(len, messages))
    dist.broadcast(_number(longest), 0, group=_messages())
    sizes = [_number(len(message)) for message in messages]
    dist.scatter(_number(0), sizes, 0, group=_messages())
    padded = [_bytes_tensor(message, longest) for message in messages]
    dist.scatter(_bytes_tensor(b"", longest), padded, 0, group=_messages())


def _send_error(error: BaseException) -> None:
    _send(
        [_ERROR + f"{type(error).__name__}: {error}".encode(errors="backslashreplace")]
        * world_size()
    )


def _received() -> bytes:
    longest, size = _number(0), _number(0)
    dist.broadcast(longest, 0, group=_messages())
    dist.scatter(size, None, 0, group=_messages())
    buffer = _bytes_tensor(b"", int(longest))
    dist.scatter(buffer, None, 0, group=_messages())
    message = _bytes(buffer, int(size))
    if message[:1] == _ERROR:
        raise RankError(f"rank 0 failed: {message[1:].decode()}")
    return message[1:]


def _number(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int64)


def _bytes_tensor(message: bytes, size: int) -> Tensor:
    return torch.frombuffer(bytearray(message.ljust(max(size, 1), b"\0")), dtype=torch.uint8)


def _bytes(buffer: Tensor, size: int) -> bytes:
    return bytes(buffer.numpy()[:size])
