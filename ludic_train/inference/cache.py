"""Keys and values of the sequences in flight, and attention to them.

The scale of the attention scores is in the queries already.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# Slots are added in multiples of this many, because each growth copies the whole cache.
SLOTS = 32


class KVCache:
    """Row i holds the keys and values of one sequence, from slot 0 on, for every layer.

    keys, values: [layers, rows, kv_heads, slots, head_dim]. Slots past a row's length hold finite
    leftovers, which readers mask.
    like: a tensor with the type and device of the cache.
    """

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, like: Tensor) -> None:
        self.keys = like.new_zeros(num_layers, 0, num_kv_heads, 0, head_dim)
        self.values = self.keys

    @property
    def num_slots(self) -> int:
        """Tokens that every row has room for."""
        return self.keys.shape[3]

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens; those in it stay."""
        _, rows, _, slots, _ = self.keys.shape
        if num_rows <= rows and num_slots <= slots:
            return
        # Doubled, so that a text that grows token by token is copied a logarithmic number of times.
        if num_slots > slots:
            slots = max(2 * slots, -(-num_slots // SLOTS) * SLOTS)
        rows = max(num_rows, rows)
        self.keys, self.values = (_grown(kept, rows, slots) for kept in (self.keys, self.values))

    def follow(self, like: Tensor) -> None:
        """Take the type and device of `like`; what rows hold stays."""
        self.keys, self.values = self.keys.to(like), self.values.to(like)

    def write_prompts(
        self, layer: int, key: Tensor, value: Tensor, repeats: Tensor, rows: slice
    ) -> None:
        """Copy prompt i, [prompts, tokens, kv_heads, head_dim], into its `repeats[i]` rows.

        The rows of all prompts, in order, are `rows`.
        """
        for cache, new in ((self.keys, key), (self.values, value)):
            copies = new.repeat_interleave(repeats, dim=0).transpose(1, 2)
            cache[layer, rows, :, : new.shape[1]] = copies

    def slots_at(self, lengths: Tensor) -> Tensor:
        """Places that `append` writes to for rows of these lengths, one for each row and head.

        The same for all layers, so they are computed once per step.
        """
        _, _, heads, slots, _ = self.keys.shape
        first = torch.arange(0, lengths.shape[0] * heads * slots, slots, device=lengths.device)
        return (first.view(-1, heads) + lengths[:, None]).flatten()

    def append(self, layer: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write a token of each row, [rows, kv_heads, head_dim], to the places of `slots_at`."""
        for cache, new in ((self.keys, key), (self.values, value)):
            cache[layer].view(-1, new.shape[-1]).index_copy_(
                0, slots, new.reshape(-1, new.shape[-1])
            )

    def read(self, layer: int, num_rows: int, num_slots: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first rows and slots, [rows, kv_heads, slots, head_dim]."""
        where = (layer, slice(num_rows), slice(None), slice(num_slots))
        return self.keys[where], self.values[where]

    def move(self, sources: Sequence[int], targets: Sequence[int], num_slots: int) -> None:
        """Copy the first `num_slots` slots of the source rows over the target rows."""
        for cache in (self.keys, self.values):
            cache[:, targets, :, :num_slots] = cache[:, sources, :, :num_slots]


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
    # Heads that share keys are queries of one attention: [rows, kv_heads, shared, head_size], so
    # that keys and values are not repeated for each of them.
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


def _grown(kept: Tensor, num_rows: int, num_slots: int) -> Tensor:
    """A larger tensor, zero beyond the rows and slots of the given one."""
    layers, rows, heads, slots, dim = kept.shape
    # Zeros, since a masked slot still meets the arithmetic, and NaN would survive the mask.
    grown = kept.new_zeros(layers, num_rows, heads, num_slots, dim)
    grown[:, :rows, :, :slots] = kept
    return grown
