"""Processes that train together: their numbers, and messages from one to the others.

Started by torchrun, each process is a rank of torch.distributed's default group. Without one there
is rank 0 of 1, and nothing here communicates. Messages are JSON or arrays, never a pickle.

Messages travel through a group of their own, on the CPU, that waits for days. So the other ranks
stay alive while rank 0 evaluates, saves, or waits for a server, however short the default group's
timeout is; if rank 0 dies, its connections close and they fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TypeVar

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


def barrier() -> None:
    """Return once every rank is here; call it before a collective of the default group."""
    # That group's timeout may be short, and ranks that rank 0 held up would run into it.
    if world_size() > 1:
        dist.barrier(_messages())


def scatter(
    make: Callable[[], Sequence[T]], encode: Callable[[T], bytes], decode: Callable[[bytes], T]
) -> T:
    """This rank's part of the result of `make`, which only rank 0 calls.

    An error of `make` is raised on every rank, as RankError on the others, so none waits for ever.
    """
    if world_size() == 1:
        (part,) = make()
        return part
    if rank() != 0:
        return decode(_received())
    with _reporting():
        parts = make()
    _send([_DATA + encode(part) for part in parts])
    return parts[0]


def number_from_rank_0(make: Callable[[], int]) -> int:
    """The number that `make` returns on rank 0, on every rank; errors as of `scatter`."""
    return scatter(lambda: [make()] * world_size(), lambda number: b"%d" % number, int)


def call_on_rank_0(action: Callable[[], object]) -> None:
    """Do it on rank 0 while the others wait.

    An error is raised on every rank, as RankError on the others.
    """
    scatter(lambda: [action()] * world_size(), lambda _: b"", bytes)


async def run_on_rank_0(work: Callable[[], Awaitable[T]]) -> T | None:
    """Result of the coroutine, which only rank 0 runs while the others wait; None on the others.

    An error is raised on every rank, as RankError on the others.
    """
    if world_size() == 1:
        return await work()
    if rank() != 0:
        # In a thread, so that signals reach this process while it waits.
        await asyncio.to_thread(_received)
        return None
    with _reporting():
        result = await work()
    _send([_DATA] * world_size())
    return result


async def feed_rank_0(items: Iterator[T], take: Callable[[Iterator[T]], Awaitable[None]]) -> None:
    """Await `take(items)` on rank 0, while every rank makes each item that it takes.

    items: an iterator on every rank, whose `next` communicates. Rank 0 may wait between two items
    for as long as it likes, and may stop early. An error of `take` is raised on every rank, as
    RankError on the others.
    """

    def follow() -> None:
        """Make an item for each order of rank 0, until it ends."""
        while _received() == _NEXT:
            next(items, None)

    def announced() -> Iterator[T]:
        """The items, each after the other ranks were sent the order to make theirs."""
        while True:
            # Before the last `next` too: the end of the items may have to be found together.
            _send([_DATA + _NEXT] * world_size())
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    if world_size() == 1:
        await take(items)
    elif rank() != 0:
        await asyncio.to_thread(follow)
    else:
        with _reporting():
            await take(announced())
        _send([_DATA + _END] * world_size())


def all_gather(message: bytes) -> list[bytes]:
    """The messages of all ranks, in the order of ranks, on every rank."""
    if world_size() == 1:
        return [message]
    # Metrics of ranks differ in size, and a collective's buffers must not.
    longest = torch.tensor(len(message))
    dist.all_reduce(longest, dist.ReduceOp.MAX, group=_messages())
    buffers = [_padded(b"", int(longest)) for _ in range(world_size())]
    dist.all_gather(buffers, _padded(message, int(longest)), group=_messages())
    return list(map(_unpadded, buffers))


def add_up_gradients(params: Sequence[nn.Parameter]) -> None:
    """Replace the gradients of replicated params by their sums over the ranks."""
    # One message for all params: hundreds of small ones would cost more than the bytes.
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for param, part in zip(params, parts, strict=True):
        param.grad = part.view_as(param)


def copy_from_rank_0(params: Sequence[Tensor]) -> None:
    """Give replicated params the values that they have on rank 0."""
    barrier()
    for param in params:
        dist.broadcast(param.detach(), 0)


def _messages() -> dist.ProcessGroup:
    """The group that messages travel through; the first call must be made on all ranks."""
    world = dist.group.WORLD
    assert world is not None
    return _made_for(world)


# By the world group, so that a program may end one and start another.
@lru_cache(maxsize=1)
def _made_for(world: dist.ProcessGroup) -> dist.ProcessGroup:
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE)
    return group


@contextmanager
def _reporting() -> Iterator[None]:
    """Send an error of the block to the other ranks, which raise it as RankError."""
    try:
        yield
    except BaseException as error:
        # Cancellation too: the others would wait for days.
        text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace")
        _send([_ERROR + text] * world_size())
        raise


def _send(messages: Sequence[bytes]) -> None:
    """Send one message to each rank, from rank 0; its own is not delivered."""
    longest = max(map(len, messages))
    # Collectives need buffers of one size on all ranks, and the others know none yet.
    dist.broadcast(torch.tensor(longest), 0, group=_messages())
    padded = [_padded(message, longest) for message in messages]
    dist.scatter(_padded(b"", longest), padded, 0, group=_messages())


def _received() -> bytes:
    """The message of rank 0 to this rank. Raises RankError where it reports an error."""
    longest = torch.tensor(0)
    dist.broadcast(longest, 0, group=_messages())
    buffer = _padded(b"", int(longest))
    dist.scatter(buffer, None, 0, group=_messages())
    message = _unpadded(buffer)
    if message[:1] == _ERROR:
        raise RankError(f"rank 0 failed: {message[1:].decode()}")
    return message[1:]


def _padded(message: bytes, size: int) -> Tensor:
    """The message's length in 8 bytes, the message, and zeros up to `size` bytes of message."""
    head = len(message).to_bytes(8, "little")
    return torch.frombuffer(bytearray(head + message.ljust(size, b"\0")), dtype=torch.uint8)


def _unpadded(buffer: Tensor) -> bytes:
    """The message of which `_padded` made the buffer."""
    data = buffer.numpy()
    return data[8 : 8 + int.from_bytes(data[:8].tobytes(), "little")].tobytes()
