"""The wire from data to a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ludic_train.types import SAWBatch


class BatchSource(Protocol):
    """Gives batches, and knows how to go on where it stopped."""

    async def next_batch(self) -> SAWBatch:
        """The next batch; never empty."""

    def state_dict(self) -> dict[str, Any]:
        """What JSON must hold so that an equal source goes on with the batch after this one."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the source that returned `state` stopped."""


@runtime_checkable
class DurableSource(Protocol):
    """A source whose data waits elsewhere until it is told what has been learned from."""

    async def trained(self, version: int) -> None:
        """Note that every batch given so far is in the params `version`.

        Called before the first batch, and when the last update from a batch was made.
        """
