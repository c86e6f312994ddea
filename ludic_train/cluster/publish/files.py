"""Params as safetensors in a folder that the trainer and its servers see."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ludic_gym.clients.transport import root_addresses
from ludic_gym.web_pages import LOOPBACK
from ludic_train.cluster.publish.control import SESSION_OPEN, backend_of
from ludic_train.cluster.publish.fleet import LIMIT_S, Fleet, OnFailure, Replica
from ludic_train.disk import writing
from ludic_train.errors import PublishError
from ludic_train.models.adapters import check_served
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.sources.publisher import Stamping
from ludic_vllm import BACKEND

Params = Iterable[tuple[str, Tensor]]
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "ludic-params-"
# Bytes of a file, which are in memory beside params that have to be converted or come from a card.
FILE_BYTES = 2**30
# Seconds until a folder without a lock is that of a process which was killed.
ORPHAN_S = 60.0
# Types in which params of 32 bits are sent where the servers compute in them.
SHORT = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class FilesPublisher:
    """Writes each version into a folder, from which servers take it while they sample.

    urls: of the servers: vLLM by `ludic serve`, or the local engine.
    folder: that trainer and servers see; None takes shared memory, or the folder of temporary files
        where that has no room, for servers on this machine.
    clients: get each version, and the servers that have it.
    on_failure, limit_s: handling of a server that fails, and the time limit of each phase.
    model: the one that is trained; params go out under the names that its checkpoint has, adapters
        merged. None for a model of the same names in memory, without adapters.
    dtype: that the trainer computes in, such as "bfloat16": of a server that computes in another
        one the log has a warning. "auto" for none.
    pause_s: seconds of the last publication between the first pause and the last resume.

    Params of 32 bits go out in 16 where all servers compute in these; none with NaN goes out.
    Servers check names, shapes and dtypes, and pause for the swap alone. All servers are ready for
    a version before any uses it: where one fails and `on_failure` is "stop", every server still has
    the version before. A server that failed is connected again at the next publication.
    The files are removed at the end, and those of a killed process at the next publication.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str | None = None,
        *,
        clients: Sequence[Stamping] = (),
        on_failure: OnFailure = "stop",
        limit_s: float = LIMIT_S,
        model: nn.Module | None = None,
        dtype: str = "auto",
    ) -> None:
        if model is not None:
            check_served(model)
        self.fleet = Fleet(urls, clients, on_failure, limit_s)
        self.pause_s = 0.0
        self._folder = None if folder is None else Path(folder)
        self._model, self._dtype = model, dtype
        self._dtypes: dict[str, str] = {}

    async def publish(self, params: Params, version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        Raises PublishError with the servers and phases that failed.
        """
        fleet = self.fleet
        async with aclosing(fleet):
            try:
                joining = fleet.in_state("new", "failed")
                await fleet.run("connect", joining, self._connect, then="ready")
                dtypes = {self._dtypes[r.url] for r in fleet.in_state("ready")}
                dtype = dtypes.pop() if len(dtypes) == 1 else None
                named = checkpoint_params(params, self._model)
                with new_folder(self._folder or local_folder(self._model)) as path:
                    await write_params(path, outgoing(named, dtype, self._model))
                    await self._push(path, version)
            except BaseException:
                await self._roll_back()
                # Params that are sharded over ranks need every rank to read them to the end.
                for _ in params:
                    pass
                raise

    async def take_over(self) -> None:
        """Close sessions that another publisher left open when it died.

        Servers without an open session are unchanged. A publisher that still runs loses its update.
        """
        async with aclosing(self.fleet):
            await self.fleet.attempt(self.fleet.replicas, lambda r: r.server.abort())

    async def _push(self, folder: Path, version: int) -> None:
        """Run all phases, from "start" to "resume", on the servers that are ready."""
        update_info = {"folder": str(folder.resolve())}

        async def finish(replica: Replica) -> None:
            await replica.server.finish(version)
            replica.version = version

        # Each phase ends on all servers before the next one begins on any, so that until "finish"
        # a failure anywhere leaves every server with its whole old version.
        run, fleet = self.fleet.run, self.fleet
        starting = fleet.in_state("ready")
        await run("start", starting, lambda r: r.server.start(), then="updating")
        await run("update", fleet.in_state("updating"), lambda r: r.server.update(update_info))
        began = time.perf_counter()
        await run("pause", fleet.in_state("updating"), lambda r: r.server.pause())
        await run("finish", fleet.in_state("updating"), finish)
        # Before "resume": the first completion of the new params must carry their version.
        fleet.stamp(version, "updating")
        updating = fleet.in_state("updating")
        await run("resume", updating, lambda r: r.server.resume(), then="ready")
        self.pause_s = time.perf_counter() - began

    async def _connect(self, replica: Replica) -> None:
        """Ask a server for its engine and type, and close a session that it may still have."""
        if replica.error and SESSION_OPEN not in replica.error:
            # It may still be in the session that failed.
            await replica.server.abort()
        config = await replica.server.config()
        backend = backend_of(config)
        if backend not in ("", BACKEND):
            raise PublishError(
                f"the server takes params by vLLM's {backend!r} and not from files: start it with "
                "`ludic serve --transfer files`, or take a VLLMTransferPublisher"
            )
        dtype = str((config.get("model_config") or {}).get("dtype", "")).removeprefix("torch.")
        self._dtypes[replica.url] = dtype
        if self._dtype != "auto" and dtype not in ("", self._dtype):
            logging.getLogger(__name__).warning(
                "%s computes in %s, and the trainer in %s: updates too small for bfloat16 change "
                "one of them alone; serve in the trainer's type (ludic serve --dtype %s), or train "
                "in that of the server",
                *(replica.url, dtype, self._dtype, self._dtype),
            )
        replica.connected()

    async def _roll_back(self) -> None:
        """Resume the servers that still have whole params."""
        whole = [
            replica
            for replica in self.fleet.in_state("updating", "failed")
            # A session of another publisher is not ours to end. A server that failed in "finish"
            # may have a mixture of old and new params, and must stay paused.
            if replica.phase != "finish" or replica.state == "updating"
            if SESSION_OPEN not in replica.error
        ]
        # Cancelled before the response: the server may be paused, or have opened the session.
        whole += [r for r in self.fleet.in_state("ready") if r.phase in ("pause", "start")]
        await self.fleet.attempt(whole, lambda r: r.server.abort())
        await self.fleet.attempt(whole, lambda r: r.server.resume())
        for replica in self.fleet.in_state("updating"):
            replica.state = "ready"


async def write_params(folder: Path, params: Params, *, file_bytes: int = FILE_BYTES) -> None:
    """Write params into safetensors files of a folder, which is made if it is missing.

    params: must stay as they are until this returns; a cancelled call ends with its file, too.
    file_bytes: that a file holds at most; a larger param is in one by itself.
    Raises PublishError where they cannot be written.
    """
    held: dict[str, Tensor] = {}
    number, size = 1, 0
    for name, param in params:
        # No copy of what a CPU holds: the file is written from the memory of the params.
        tensor = param.detach().cpu().contiguous()
        if held and size + tensor.nbytes > file_bytes:
            await write_file(folder / f"params-{number:05d}.safetensors", held)
            held, number, size = {}, number + 1, 0
        held[name] = tensor
        size += tensor.nbytes
    await write_file(folder / f"params-{number:05d}.safetensors", held)


async def write_file(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file in a thread, and its folder if it is missing.

    tensors: of the CPU, each of contiguous memory. Raises PublishError where it cannot be written.
    """

    def write() -> None:
        with writing(path.parent, PublishError, (SafetensorError,)):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, path, metadata={"format": "pt"})

    written = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        await asyncio.shield(written)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and training may change the params as soon as this ends.
        await asyncio.wait({written})
        raise


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """A folder in `parent` that no other user can read, removed at the end of the block.

    Folders that killed processes left there are removed first.
    """
    for orphan in parent.glob(f"{PREFIX}*"):
        # Folders of other users cannot be opened, and others may be removed meanwhile.
        with suppress(OSError):
            # A new folder is about to be locked.
            if time.time() - orphan.stat().st_mtime > ORPHAN_S:
                descriptor = _locked(orphan)
                shutil.rmtree(orphan, ignore_errors=True)
                os.close(descriptor)
    with writing(parent, PublishError):
        parent.mkdir(parents=True, exist_ok=True)
        # Of unguessable name, because vLLM may keep what it read under a name before.
        folder = Path(mkdtemp(prefix=PREFIX, dir=parent))
    lock: int | None = None
    # A file system without locks leaves the folders of killed processes.
    with suppress(OSError):
        lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock of a folder. Raises OSError if another has it."""
    # Windows has no such module, and the rest of this file works there.
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def folder_for(urls: Sequence[str], shared: Path) -> Path | None:
    """Folder for params of these servers: None if all are on this machine, else `shared`."""
    hosts = {urlsplit(url).hostname for url in root_addresses(urls)}
    return None if hosts <= LOOPBACK else shared


def local_folder(model: nn.Module | None) -> Path:
    """Shared memory of this machine if it has room for all params, often not in containers."""
    size = 0 if model is None else sum(param.nbytes for param in model.parameters())
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1.1 * size:
        return SHARED_MEMORY
    return Path(gettempdir())


def outgoing(
    params: Params, dtype: str | None, model: nn.Module | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The params, those of 32 bits rounded to a server's type of 16 bits, each checked.

    dtype: that the servers compute in, such as "bfloat16"; None leaves all params as they are.
    model: whose architecture names the modules that stay in float32; None for none.
    Raises PublishError for a param with a value that is NaN or infinite, also after rounding.
    """
    short, in_float32 = SHORT.get(dtype or ""), float32_modules(model)
    for name, tensor in params:
        rounded = tensor.detach()
        stays = any(part in name for part in in_float32)
        if short is not None and tensor.dtype == torch.float32 and not stays:
            rounded = rounded.to(short)
        # After the rounding: a finite float32 above 65504 is infinite in float16.
        require_finite(name, rounded)
        yield name, rounded


def float32_modules(model: nn.Module | None) -> Collection[str]:
    """Parts of names that transformers keeps in float32, also in models of 16 bits."""
    names: set[str] = set()
    for module in () if model is None else model.modules():
        # Attributes of transformers' models, at any depth below the wrappers of peft.
        for attribute in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict"):
            names |= set(getattr(module, attribute, None) or ())
    return names


def require_finite(name: str, tensor: Tensor) -> None:
    """Raise PublishError if a value is NaN or infinite."""
    # In float32, because a sum in float16 overflows above 65504.
    if not tensor.is_floating_point() or bool(tensor.sum(dtype=torch.float32).isfinite()):
        return
    # The sum alone can overflow.
    bad = int(tensor.numel() - tensor.isfinite().sum())
    if bad:
        raise PublishError(
            f"{name} has {bad} of {tensor.numel()} values that are NaN or infinite, and is not "
            "published: the last update broke the params; resume from a checkpoint before it, with "
            "a lower learning rate"
        )
