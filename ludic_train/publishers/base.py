"""The wire from a trainer to its samplers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor


class PolicyPublisher(Protocol):
    """Brings a version of the params to every sampler."""

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from `params`, named `version`."""
