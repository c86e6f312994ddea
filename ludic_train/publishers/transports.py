"""Transports of params to a vLLM server: TCP, or files that both machines see."""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from safetensors.torch import save_file
from torch import Tensor

from ludic_train.errors import PublishError
from ludic_train.publishers.control import ControlClient
from ludic_vllm.wire import Chunk, broadcast, gloo_group, open_store, unpacked

T = TypeVar("T")
# Sends the buffer of a chunk to one server, and returns when it has arrived.
Send = Callable[[Tensor], None]
SHARED_MEMORY = Path("/dev/shm")


class Wire(Protocol):
    """A transport of params.

    alignment: of params in a chunk's buffer, in bytes; the receiver assumes the same.
    """

    alignment: int

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Connect to one server; the function that sends a chunk's buffer to it.

        limit_s: time limit in seconds, also of each later transfer. Raises PublishError.
        """

    def announced(self, chunk: Chunk, *, is_last: bool) -> AbstractContextManager[dict[str, Any]]:
        """Announcement of a chunk for the servers; at the end of the block all have received it."""


class GlooWire:
    """TCP, to any machine.

    host: this machine's address as the servers see it; None determines it from the route.
    """

    alignment = 64

    def __init__(self, host: str | None = None) -> None:
        self._host = host

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Connect by a group of this process (rank 0) and the server's workers.

        Raises PublishError if they do not all join within `limit_s` seconds.
        """
        # A group per server, because one lost member breaks a group for all others.
        host = self._host or own_address(server.url)
        store = open_store(host, timeout_s=limit_s)
        world_size = 1 + await server.world_size()
        init_info = {
            "transport": "gloo",
            "master_address": host,
            "master_port": store.port,
            "world_size": world_size,
            "timeout_s": limit_s,
        }

        def join() -> Send:
            group = gloo_group(store, rank=0, world_size=world_size, timeout_s=limit_s)
            # Gloo sends from CPU memory only.
            return lambda buffer: broadcast(group, buffer.cpu())

        return await met(server.connect(init_info), join)

    @contextmanager
    def announced(self, chunk: Chunk, *, is_last: bool) -> Iterator[dict[str, Any]]:
        """Names, dtypes and shapes; the buffer itself goes through the group."""
        yield {**announcement(chunk), "last": is_last}


class FileWire:
    """Files in `folder`, which trainer and servers see; None takes shared memory.

    For servers on the same machine, or a file system that machines share. The files are private to
    the user, and removed after each chunk.
    """

    alignment = 64

    def __init__(self, folder: Path | str | None = None) -> None:
        usual = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = usual if folder is None else Path(folder)

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """A function that sends nothing, because the server reads the file."""
        await server.connect({"transport": "files"})
        return lambda buffer: None

    @contextmanager
    def announced(self, chunk: Chunk, *, is_last: bool) -> Iterator[dict[str, Any]]:
        """The file's path, which exists as long as the block."""
        # mkdtemp makes a folder of unguessable name that no other user can read.
        private = Path(mkdtemp(prefix="ludic-params-", dir=self._folder))
        try:
            path = private / "chunk.safetensors"
            save_file(dict(unpacked(chunk.infos, chunk.buffer.cpu())), path)
            yield {**announcement(chunk), "last": is_last, "path": str(path)}
        finally:
            shutil.rmtree(private)


def announcement(chunk: Chunk) -> dict[str, Any]:
    """A chunk's params in the format of vLLM's update_info.

    Three parallel lists: "names", "dtype_names" such as "bfloat16", and "shapes".
    """
    return {
        "names": [info.name for info in chunk.infos],
        "dtype_names": [info.dtype for info in chunk.infos],
        "shapes": [list(info.shape) for info in chunk.infos],
    }


def own_address(url: str) -> str:
    """This machine's address as the server at `url` sees it.

    Raises OSError if there is no route to the server.
    """
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only chooses the address that it would send from.
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return str(probe.getsockname()[0])


async def met(request: Coroutine[Any, Any, object], join: Callable[[], T]) -> T:
    """Result of `join` in a thread, while `request` has the server do its part.

    request: sent to the server. join: blocks until the server has joined or received.
    Raises PublishError for the first of the two that fails.
    """
    requested, joined = asyncio.ensure_future(request), in_thread(join)
    both: set[asyncio.Future[Any]] = {requested, joined}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        if not requested.done():
            # The server's error says more than a broken connection, and may be on its way.
            await asyncio.wait({requested}, timeout=5.0)
        if requested.done():
            requested.result()
        return await joined
    finally:
        requested.cancel()
        # Its error often follows from that of the request, and asyncio would print it at exit.
        joined.add_done_callback(lambda future: future.cancelled() or future.exception())


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Result of `work` in a thread; its errors as PublishError.

    The thread does not delay the exit of the process.
    """
    result: concurrent.futures.Future[T] = concurrent.futures.Future()
    # Cancelling the future of asyncio must not cancel this one, which the thread sets in any case.
    result.set_running_or_notify_cancel()

    def fail(error: BaseException) -> None:
        result.set_exception(PublishError(f"{type(error).__name__}: {error}"))

    # Daemon threads, unlike those of an executor, which Python joins at exit: a transfer to a lost
    # server can block for as long as its time limit.
    pool = ThreadPool(1)
    pool.apply_async(work, callback=result.set_result, error_callback=fail)
    pool.close()
    return asyncio.wrap_future(result)
