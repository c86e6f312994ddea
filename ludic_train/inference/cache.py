"""Keys and values of the sequences in flight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SLOTS = 32


class KVCache:
    """Row i holds the keys and values of one sequence, from slot 0 on, for every layer.

    keys, values: [layers, rows, kv_heads, slots, head_dim]. Slots past a row's length hold finite
    leftovers, which readers mask.
    """

    def __init__(self, num_layers: int, num_kv_heads: int, head_dim: int, like: Tensor) -> None:
        self.keys = like.new_zeros(num_layers, 0, num_kv_heads, 0, head_dim)
        self.values = self.keys

    @property
    def num_slots(self) -> int:
        """How many tokens every row has room for."""
        return self.keys.shape[3]

    @property
    def num_bytes(self) -> int:
        """Memory that keys and values take."""
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens; what is there stays."""
        _, rows, _, slots, _ = self.keys.shape
        if num_rows <= rows and num_slots <= slots:
            return
        if num_slots > slots:
            slots = max(2 * slots, -(-num_slots // SLOTS) * SLOTS)
        rows = max(num_rows, rows)
        self.keys, self.values = (_grown(kept, rows, slots) for kept in (self.keys, self.values))

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
        """Where `append` writes for rows of these lengths, one number for each row and head."""
        _, _, heads, slots, _ = self.keys.shape
        first = torch.arange(0, lengths.shape[0] * heads * slots, slots, device=lengths.device)
        return (first.view(-1, heads) + lengths[:, None]).flatten()

    def append(self, layer: int, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write a token of each row, [rows, kv_heads, head_dim], to where `slots_at` says."""
        for cache, new in ((self.keys, key), (self.values, value)):
            cache[layer].view(-1, new.shape[-1]).index_copy_(
                0, slots, new.reshape(-1, new.shape[-1])
            )

    def read(self, layer: int, num_rows: int, num_slots: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first rows and slots, [rows, kv_heads, slots, head_dim]."""
        return self.keys[layer, :num_rows, :, :num_slots], self.values[
            layer, :num_rows, :, :num_slots
        ]

    def move(self, sources: Sequence[int], targets: Sequence[int], num_slots: int) -> None:
        """Copy the first `num_slots` slots of the source rows over the target rows."""
        for cache in (self.keys, self.values):
            cache[:, targets, :, :num_slots] = cache[:, sources, :, :num_slots]


def _grown(kept: Tensor, num_rows: int, num_slots: int) -> Tensor:
    layers, rows, heads, slots, dim = kept.shape
    # Zeros, since a masked slot still meets the arithmetic, and NaN would survive the mask.
    grown = kept.new_zeros(layers, num_rows, heads, num_slots, dim)
    grown[:, :rows, :, :slots] = kept
    return grown
