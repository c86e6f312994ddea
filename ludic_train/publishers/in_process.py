"""Publishing to a sampler that reads the trainer's own params."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from ludic_train.inference import EmbeddedChatClient


class InProcessPublisher:
    """Tells an embedded client which version the params it shares now have; nothing is copied."""

    def __init__(self, client: EmbeddedChatClient) -> None:
        self.client = client

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Stamp completions with `version` from here on; `params` are the client's already."""
        self.client.policy_version = version
