"""Streams that rows of some runs have: sampling masks, a teacher's tokens, experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_gym.sampling import unpacked_masks
from ludic_train.errors import UntrainableRollout
from ludic_train.expert_text import UNKNOWN
from ludic_train.types import SAWItem, TopTokens

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


def masks_of(item: SAWItem) -> dict[str, Array]:
    """`mask_sizes` and `mask_ids` of the tokens of an item."""
    drawn = item.input_ids[item.action_mask]
    if item.sampling_mask is None:
        # Not left out, as other streams that some items lack: a token of a masked item would be
        # taken for one that was drawn from the whole vocabulary.
        return {"mask_sizes": np.zeros(len(drawn), np.int64), "mask_ids": np.zeros(0, np.int64)}
    sizes, ids = unpacked_masks(item.sampling_mask, drawn)
    return {"mask_sizes": sizes, "mask_ids": ids}


def teacher_of(teacher: TopTokens, tokens: int) -> dict[str, Array]:
    """`teacher_ids` and `teacher_logprobs` of an item with so many sampled tokens.

    Raises UntrainableRollout for other shapes.
    """
    ids, logprobs = teacher.ids, teacher.logprobs
    if ids.ndim != 2 or len(ids) != tokens or logprobs.shape != (tokens, ids.shape[1] + 1):
        raise UntrainableRollout(
            f"a teacher gave ids {list(ids.shape)} and log-probs {list(logprobs.shape)} for "
            f"{tokens} sampled tokens; they are [{tokens}, k] and [{tokens}, k + 1]"
        )
    return {"teacher_ids": ids, "teacher_logprobs": logprobs}
