"""The wire from a trainer to its servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from ludic_train.inference.client import LocalChatClient


class PolicyPublisher(Protocol):
    """Brings a version of the params to every sampler."""

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from `params`, named `version`."""


class InProcessPublisher:
    """Tells an local client which version the params it shares now have; nothing is copied."""

    def __init__(self, client: LocalChatClient) -> None:
        self.client = client

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Stamp completions with `version` from here on; `params` are the client's already."""
        self.client.policy_version = version
