"""Attention over keys that queries share, with the scale of the scores already in the queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_all(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention within whole texts, [texts, tokens, heads, head_size] in and out."""
    attended = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        is_causal=True,
        scale=1.0,
        enable_gqa=True,
    )
    return attended.transpose(1, 2)


def attend_one(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of one query a row, [rows, heads, head_size] in and out.

    keys, values: [rows, kv_heads, slots, head_size]; mask as `length_mask` makes it, or None if all
    rows fill all slots.
    """
    # Heads that share keys are queries of one attention: [rows, kv_heads, shared, head_size].
    grouped = query.reshape(query.shape[0], keys.shape[1], -1, query.shape[-1])
    scores = torch.matmul(grouped, keys.transpose(-1, -2))
    if mask is not None:
        scores += mask
    weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
    return torch.matmul(weights, values).view_as(query)


def length_mask(lengths: Tensor, num_slots: int, dtype: torch.dtype) -> Tensor:
    """0 for the slots up to `lengths[i]`, -inf after, [rows, 1, 1, num_slots]."""
    beyond = torch.arange(num_slots, device=lengths.device) > lengths[:, None]
    mask = torch.zeros(beyond.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(beyond, -torch.inf)[:, None, None]
