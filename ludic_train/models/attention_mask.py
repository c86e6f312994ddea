"""The attention mask of rows whose items share prompts."""

from __future__ import annotations

import torch
from torch import Tensor


def mask_of_positions(position_ids: Tensor) -> Tensor:
    """True where a token attends to another, bool [B, 1, T, T] (of a query, to a key).

    position_ids: int64 [B, T]. An item starts at 0; where positions jump back to s > 0, another
    continuation of its first s tokens starts. Tokens attend to earlier ones of their own piece and,
    in a continuation, to those s tokens.
    """
    ones = torch.ones_like(position_ids[:, :1], dtype=torch.bool)
    starts = torch.cat([ones, position_ids.diff(dim=1) != 1], 1)
    column = torch.arange(position_ids.shape[1], device=position_ids.device)
    first = position_ids.gather(1, torch.where(starts, column, 0).cummax(1).values)
    piece, item = starts.cumsum(1), (starts & (position_ids == 0)).cumsum(1)
    own = piece[:, :, None] == piece[:, None, :]
    before = (position_ids[:, None, :] < first[:, :, None]) & (first[:, None, :] == 0)
    of_item = item[:, :, None] == item[:, None, :]
    earlier = column[None, :] <= column[:, None]
    return ((own | (before & of_item)) & earlier)[:, None]
