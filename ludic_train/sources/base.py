"""The wire from data to a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ludic_train.saw import SAWBatch


class BatchSource(Protocol):
    """Gives batches, and knows how to go on where it stopped."""

    async def next_batch(self) -> SAWBatch:
        """The next batch; never empty."""

    def state_dict(self) -> dict[str, Any]:
        """What JSON must hold so that an equal source goes on with the batch after this one."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the source that returned `state` stopped."""
