"""Transports of params to servers, and the one of files that both machines see."""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.shared_memory import SharedBuffers, no_room
from ludic_train.disk import write_all
from ludic_train.errors import PublishError
from ludic_vllm.wire import Chunk, checksum, host_memory

T = TypeVar("T")
# Sends the buffer of a chunk to one server, and returns when it has arrived.
Send = Callable[[Tensor], None]
SHARED_MEMORY = Path("/dev/shm")


class Wire(Protocol):
    """A transport of params.

    alignment: of params in a chunk's buffer, in bytes; the receiver assumes the same.
    stages: True if servers keep the params apart until the swap, and sample meanwhile.
    reports: True if the send functions wait until the servers have taken a chunk.
    """

    alignment: int
    stages: bool
    reports: bool

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Connect to one server; the function that sends a chunk's buffer to it.

        limit_s: time limit in seconds, also of each later transfer. Raises PublishError.
        """

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """The buffer of a chunk, uint8 [size]; device: that of its params."""

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        """Announcement of a chunk, whose buffer `allocated` made, for each of the servers."""

    def release(self, *, swapped: bool) -> None:
        """Free what servers no longer need of the chunks that they have received.

        swapped: True at the end of a publication, False after each chunk.
        """


class FileWire:
    """Files in `folder`, which trainer and servers see; None takes shared memory.

    For servers on the same machine, or a file system that machines share. The files are private to
    the user, and servers map them: until the swap, they are one copy of all params for all servers
    of the machine and their workers. Those in `folder` are removed after the swap. Those in shared
    memory stay for the next publication, up to 2 GiB, and end with this object; further ones have
    no name from the moment that the servers have them, and end with their mappings.
    """

    alignment = 64
    stages, reports = True, False

    def __init__(self, folder: Path | str | None = None) -> None:
        usual = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = usual if folder is None else Path(folder)
        # Elsewhere, a file without a name may be gone for another machine.
        self._needs_names = folder is not None
        self._shared = SharedBuffers(usual) if usual and folder is None else None
        self._files: list[Path] = []

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """A function that sends nothing, because the server reads the file."""
        await server.connect({"transport": "files"})
        return lambda buffer: None

    def allocated(self, size: int, device: torch.device) -> Tensor:
        """Shared memory, or memory of the host that `announced` writes to a file.

        Raises PublishError where shared memory has no room for it.
        """
        shared = None if self._shared is None else self._shared.buffer(size)
        # Not new memory of a file, which costs more than to write it in `announced`.
        return host_memory(size) if shared is None else shared

    def announced(self, chunk: Chunk, urls: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Names, dtypes, shapes, checksum, and the path of the file with the chunk.

        Raises PublishError where the file system has no room for it.
        """
        path = None if self._shared is None else self._shared.path(chunk.buffer)
        path = path or self._written(chunk.buffer)
        info = {**announcement(chunk), "checksum": checksum(chunk.buffer), "path": str(path)}
        return dict.fromkeys(urls, info)

    def release(self, *, swapped: bool) -> None:
        """Remove the files, those of a shared folder after the swap."""
        if swapped and self._shared is not None:
            self._shared.end()
        if swapped or not self._needs_names:
            for path in self._files:
                shutil.rmtree(path.parent)
            self._files = []

    def _written(self, buffer: Tensor) -> Path:
        """A new file with these bytes."""
        # mkdtemp makes a folder of unguessable name that no other user can read.
        path = Path(mkdtemp(prefix="ludic-params-", dir=self._folder)) / "chunk.bin"
        self._files.append(path)
        try:
            with path.open("xb", buffering=0) as file:
                write_all(file, buffer.numpy().data)
        except OSError as error:
            raise no_room(len(buffer), self._folder, error) from error
        return path


def announcement(chunk: Chunk) -> dict[str, Any]:
    """A chunk's params in the format of vLLM's update_info.

    Three parallel lists: "names", "dtype_names" such as "bfloat16", and "shapes".
    """
    return {
        "names": [info.name for info in chunk.infos],
        "dtype_names": [info.dtype for info in chunk.infos],
        "shapes": [list(info.shape) for info in chunk.infos],
    }


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
