"""Interfaces between a trainer and the engines that sample, and the pointer to published params."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ludic_train.errors import PublishError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ludic_train.engine.client import LocalChatClient

NEWEST = "newest.json"


class PolicyPublisher(Protocol):
    """Sends a version of the params to every engine that samples."""

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        params: names and tensors as in `model.named_parameters()`; they can be read once.
        Raises PublishError where an engine does not take them.
        """


class InProcessPublisher:
    """Sets the version of the params that a local client shares; nothing is copied."""

    def __init__(self, client: LocalChatClient) -> None:
        self.client = client

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Set the version of all further completions; the client has `params` already."""
        self.client.policy_version = version


class CopyPublisher:
    """Puts the params into a whole copy of the model, from which a local client samples.

    For models that are spread over ranks, or trained in another type than they are sampled in.
    """

    def __init__(self, client: LocalChatClient, twin: PreTrainedModel) -> None:
        self.client, self.twin = client, twin

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy the params; completions that were requested before end on the old ones."""
        await self.copy(params)
        self.client.policy_version = version

    async def copy(self, params: Iterable[tuple[str, Tensor]]) -> None:
        """Copy the params, which the twin has too, and leave the version."""
        # Steps of cancelled requests may still be running.
        await self.client.wait_until_idle()
        targets = dict(self.twin.named_parameters())
        for name, param in params:
            targets[name].detach().copy_(param)


class Stamping(Protocol):
    """A client that records the version it samples from, and can be limited to some servers."""

    policy_version: int | None

    def use(self, urls: Sequence[str]) -> None:
        """Use these servers only; requests in flight to others are sent again, to one of these."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version of the params, and the folder that holds them.

    path: the folder with *.safetensors, which may be removed once newer versions exist.
    """

    version: int
    path: Path


def newest(folder: Path | str) -> Published | None:
    """The latest version that a FolderPublisher wrote, None before the first.

    folder: the publisher's.
    Raises PublishError for a pointer that is no such JSON object.
    """
    pointer = Path(folder) / NEWEST
    try:
        content = json.loads(pointer.read_text())
        # The name alone, so that a pointer cannot lead out of the folder.
        name = os.path.basename(str(content["folder"]))
        return Published(int(content["version"]), Path(folder) / name)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise PublishError(f"{pointer} names no published version: {error!r}") from error
