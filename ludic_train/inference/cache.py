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

    def append(
        self, layer: int, key: Tensor, value: Tensor, lengths: Tensor, num_slots: int
    ) -> tuple[Tensor, Tensor]:
        """Write one token a row, [rows, kv_heads, head_dim], at slot `lengths[i]` of row i.

        Returns the first `num_slots` slots of these rows, [rows, kv_heads, num_slots, head_dim].
        """
        rows = torch.arange(len(key), device=key.device)
        read = []
        for cache, new in ((self.keys[layer], key), (self.values[layer], value)):
            cache[rows, :, lengths] = new
            read.append(cache[: len(key), :, :num_slots])
        return read[0], read[1]

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
