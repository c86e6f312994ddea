"""Publishing through a folder, which actors with a model of their own follow.

    FOLDER/newest.json       {"version": 12, "folder": "v000012-1f3a9c"}; replaced in one step
    FOLDER/v000012-1f3a9c/   *.safetensors; the newest few are kept
    FOLDER/model/, harness.json   initial model and prompts of actors, if the trainer wrote them

For models that every actor holds itself, such as tiny ones on CPUs.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ludic_train.cluster.publish.files import write_params
from ludic_train.disk import writing
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import PublishError
from ludic_train.sources.publisher import NEWEST, Published, newest
from ludic_vllm.files import params_in


class FolderPublisher:
    """Writes each version to `folder`; readers see complete versions only.

    frozen: names of params that training never changes; they are not written, since readers have
        them from the initial model. keep_last: versions that stay for slow readers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(FolderPublisher(folder).publish([("bias", torch.zeros(2))], version=3))
    ...     newest(folder).version
    3
    """

    def __init__(
        self, folder: Path | str, *, frozen: Collection[str] = (), keep_last: int = 4
    ) -> None:
        self.folder = Path(folder)
        self.frozen = frozenset(frozen)
        self.keep_last = keep_last

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once the version is written; actors load it before their next group.

        params: must stay as they are until then, as `BackgroundPublisher` has them do.
        Raises PublishError where it cannot be written; the version before stays.
        """
        # All are read: those that are spread over ranks need every rank to the end.
        named = [(n, tensor.detach().cpu()) for n, tensor in params if n not in self.frozen]
        # A random suffix, because a run that was rolled back publishes a version again, with other
        # params, and actors compare folders to see what is new.
        path = self.folder / f"v{version:06d}-{secrets.token_hex(3)}"
        pointer = self.folder / f".{path.name}.json"
        try:
            # Params before the pointer: readers take what it names for complete.
            await write_params(path, named)
            with writing(path, PublishError):
                pointer.write_text(json.dumps({"version": version, "folder": path.name}))
                # Atomic: a reader sees the old pointer or the new one, never a part.
                pointer.replace(self.folder / NEWEST)
        except BaseException:
            # A disk that is full has no room for a version that no pointer leads to.
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                pointer.unlink()
            raise
        # By time, because a run that was rolled back writes smaller versions later.
        older = sorted(self.folder.glob("v*-*"), key=lambda each: each.stat().st_mtime_ns)
        for old in older[: -self.keep_last]:
            shutil.rmtree(old)


def follow_folder(
    client: LocalChatClient, model: nn.Module, folder: Path | str
) -> Callable[[], Awaitable[int | None]]:
    """A function that loads the newest version of the folder if it is new, and returns it.

    model: that the client samples from. New params come between two tokens of what is in flight,
        which continues with them. None before the first version.
    The function raises PublishError for params of another model.
    """
    loaded: Published | None = None

    async def refresh() -> int | None:
        nonlocal loaded
        latest = newest(folder)
        if latest is not None and latest != loaded:
            try:
                tensors = await asyncio.to_thread(lambda: dict(params_in(latest.path)))
            except ValueError as error:
                if latest.path.exists():
                    raise PublishError(str(error)) from error
                # It was removed meanwhile: the next call finds a newer one.
            else:
                put = partial(put_params, model, tensors, latest.path)
                await client.change_params(put, latest.version)
                loaded = latest
        return None if loaded is None else loaded.version

    return refresh


def put_params(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the params of the same names, in place.

    tensors: all params of the model, or some, such as its adapters. path: named in the error.
    Raises PublishError for a name or shape that the model does not have.
    """
    targets = dict(model.named_parameters())
    # All names are checked before the first copy, so that an error leaves the model unchanged.
    for name, tensor in tensors.items():
        if name not in targets or targets[name].shape != tensor.shape:
            raise PublishError(f"{path} holds {name} of {list(tensor.shape)}: not of this model")
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)
