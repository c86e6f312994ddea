"""Experts of the rows of an update, for router replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.errors import UntrainableRollout
from ludic_train.expert_text import UNKNOWN
from ludic_train.types import SAWItem

Array = NDArray[Any]


def with_experts(items: Sequence[SAWItem], kept: Sequence[int]) -> Sequence[SAWItem]:
    """The items. Raises UntrainableRollout unless those that are kept have experts, of one form."""
    known = [experts for i in kept if (experts := items[i].experts) is not None]
    if len(known) < len(kept):
        raise UntrainableRollout(
            "router_replay is on and some rows do not say through which experts they were sampled: "
            "serve the model with `ludic serve --routed-experts`, or sample by a LocalChatClient("
            "..., routed_experts=True)"
        )
    if len(forms := {experts.shape[1:] for experts in known}) > 1:
        raise UntrainableRollout(
            f"rows of one update have experts of the shapes {sorted(forms)} per token: were they "
            "sampled from different models?"
        )
    return items


def grid_of_experts(
    items: Sequence[SAWItem], corners: Sequence[tuple[int, int]], shape: tuple[int, ...]
) -> NDArray[np.int16]:
    """Experts of the tokens of a grid, [B, T, layers, k], -1 for padding."""
    known = [item.experts for item in items if item.experts is not None]
    grid = np.full((*shape, *known[0].shape[1:]), UNKNOWN, np.int16)
    for experts, (row, column) in zip(known, corners, strict=True):
        grid[row, column : column + len(experts)] = experts
    return grid
