"""How params travel to a vLLM server: over TCP, or through files that both can see."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from torch import Tensor

from ludic_train.errors import PublishError
from ludic_train.publishers.control import ControlClient
from ludic_vllm.wire import Chunk, broadcast, gloo_group, open_store, unpacked

T = TypeVar("T")
# Sends the buffer of a chunk to one server, and returns when it is there.
Send = Callable[[Tensor], None]
SHARED_MEMORY = Path("/dev/shm")


class Wire(Protocol):
    """A way for params to travel.

    backend: what the server's --weight-transfer-config has to name.
    alignment: of params in a chunk's buffer, in bytes.
    """

    backend: str
    alignment: int

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Meet one server; how to send to it from now on. Raises PublishError if it fails."""

    def announced(self, chunk: Chunk, *, is_last: bool) -> AbstractContextManager[dict[str, Any]]:
        """What to tell the servers of a chunk; when the block ends, all have it."""


class GlooWire:
    """Over TCP, to any machine.

    host: this machine's address as the servers see it; None finds it out.
    """

    backend, alignment = "ludic", 64

    def __init__(self, host: str | None = None) -> None:
        self._host = host

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """A group of this process and the server's workers."""
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
            return lambda buffer: broadcast(group, buffer.cpu())

        return await met(server.connect(init_info), join)

    @contextmanager
    def announced(self, chunk: Chunk, *, is_last: bool) -> Iterator[dict[str, Any]]:
        """Names, dtypes and shapes."""
        yield {**announcement(chunk), "last": is_last}


class FileWire:
    """Through files in `folder`, which trainer and servers see; None takes shared memory.

    For servers on the same machine, or a file system that machines share. The files are private to
    the user, and gone after each chunk.
    """

    backend, alignment = "ludic", 64

    def __init__(self, folder: Path | str | None = None) -> None:
        usual = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = usual if folder is None else Path(folder)

    async def connect(self, server: ControlClient, *, limit_s: float) -> Send:
        """Nothing has to be sent: the server reads the file."""
        await server.connect({"transport": "files"})
        return lambda buffer: None

    @contextmanager
    def announced(self, chunk: Chunk, *, is_last: bool) -> Iterator[dict[str, Any]]:
        """The file's path, which exists as long as the block."""
        from safetensors.torch import save_file

        private = Path(mkdtemp(prefix="ludic-params-", dir=self._folder))
        try:
            path = private / "chunk.safetensors"
            save_file(dict(unpacked(chunk.infos, chunk.buffer.cpu())), path)
            yield {**announcement(chunk), "last": is_last, "path": str(path)}
        finally:
            shutil.rmtree(private)


def announcement(chunk: Chunk) -> dict[str, Any]:
    """A chunk's params, as vLLM wants to be told of them."""
    return {
        "names": [info.name for info in chunk.infos],
        "dtype_names": [info.dtype for info in chunk.infos],
        "shapes": [list(info.shape) for info in chunk.infos],
    }


def own_address(url: str) -> str:
    """This machine's address as the server at `url` sees it."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only chooses where it would send from.
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return str(probe.getsockname()[0])


async def met(asked: Any, join: Callable[[], T]) -> T:  # noqa: ANN401 - a coroutine of any kind
    """What `join` returns, run in a thread while the server does what it is asked.

    Raises PublishError for whichever of the two fails first.
    """
    request = asyncio.ensure_future(asked)
    joined = in_thread(join)
    try:
        await asyncio.wait({request, joined}, return_when=asyncio.FIRST_EXCEPTION)
        if request.done():
            request.result()
        elif joined.done():
            # The server's own words say more than a broken connection does.
            await asyncio.wait({request}, timeout=5.0)
            if request.done():
                request.result()
        return await joined
    finally:
        request.cancel()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """A future for what `work` returns in a thread that nobody waits for at exit.

    A transfer to a server that is gone can hang for as long as its time limit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # the result of `work`
        else:
            future.set_exception(PublishError(f"{type(error).__name__}: {error}"))

    def run() -> None:
        try:
            result, failure = work(), None
        except Exception as error:
            result, failure = None, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, daemon=True, name="publisher").start()
    return future
