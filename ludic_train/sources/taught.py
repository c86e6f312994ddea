"""Batches that a teacher has judged, for on-policy distillation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludic_train.losses import REFERENCE
from ludic_train.saw import SAWBatch, SAWItem
from ludic_train.sources.base import BatchSource, DurableSource


class Teacher(Protocol):
    """Says how likely it would have been to write what a student wrote."""

    async def logprobs(self, items: Sequence[SAWItem]) -> Sequence[NDArray[np.float32]]:
        """Nats of each token of each row given what came before it, [T] per item; 0 off the mask.

        At the row's own temperature.
        """


class TaughtBatchSource:
    """The batches of another source, with a teacher's log-probs attached as REFERENCE."""

    def __init__(self, source: BatchSource, teacher: Teacher) -> None:
        self.source = source
        self.teacher = teacher

    async def next_batch(self) -> SAWBatch:
        """The next batch of the source, judged by the teacher."""
        batch = await self.source.next_batch()
        judged = await self.teacher.logprobs(batch.items)
        items = [
            replace(item, attachments={**item.attachments, REFERENCE: logprobs})
            for item, logprobs in zip(batch.items, judged, strict=True)
        ]
        return replace(batch, items=tuple(items))

    async def trained(self, version: int) -> None:
        """Tell the source, where it wants to know."""
        if isinstance(self.source, DurableSource):
            await self.source.trained(version)

    def state_dict(self) -> dict[str, Any]:
        """The source's own state."""
        return self.source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the source that returned `state` stopped."""
        self.source.load_state_dict(state)
