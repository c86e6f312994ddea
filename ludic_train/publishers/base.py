"""Interfaces between a trainer and the engines that sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from ludic_train.inference.client import LocalChatClient


class PolicyPublisher(Protocol):
    """Brings a version of the params to every engine that samples."""

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from `params`, named `version`."""


class InProcessPublisher:
    """Names the version of the params that a local client shares; nothing is copied."""

    def __init__(self, client: LocalChatClient) -> None:
        self.client = client

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Stamp completions with `version` from here on; `params` are the client's already."""
        self.client.policy_version = version


class Stamping(Protocol):
    """A client that names the version it samples from, and which servers it may ask."""

    policy_version: int | None

    def use(self, urls: Sequence[str]) -> None:
        """Ask only these servers from now on."""
