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
        # Of each layer, keys and values as [places, head_dim]; and the keys that they are views of.
        self._flat: list[tuple[Tensor, Tensor]] = []
        self._flattened: Tensor | None = None

    @property
    def num_slots(self) -> int:
        """Tokens that every row has room for."""
        return self.keys.shape[3]

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def token_bytes(self) -> int:
        """Memory of one token in one row, in bytes."""
        layers, _, heads, _, dim = self.keys.shape
        return 2 * layers * heads * dim * self.keys.element_size()

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

    def check_room(self, num_rows: int, num_slots: int) -> None:
        """Raise IndexError where there is no room: kernels would write into memory of others."""
        _, rows, _, slots, _ = self.keys.shape
        if num_rows > rows or num_slots > slots:
            raise IndexError(
                f"{num_rows} rows of {num_slots} tokens, and room for {rows} of {slots}; "
                "call `reserve`"
            )

    def follow(self, like: Tensor) -> None:
        """Take the type and device of `like`; what rows hold stays."""
        self.keys, self.values = self.keys.to(like), self.values.to(like)

    def spread(self, first: int, copies: Sequence[int], num_slots: int) -> None:
        """Copy row `first + i` into `copies[i]` rows, up to slot `num_slots`.

        The copies of all, in order, begin at row `first`.
        """
        rows = torch.arange(first, first + len(copies), device=self.keys.device)
        owners = rows.repeat_interleave(torch.tensor(copies, device=rows.device))
        for cache in (self.keys, self.values):
            # Layer by layer, since all rows are copied twice.
            for layer in cache[:, :, :, :num_slots]:
                layer[first : first + len(owners)] = layer.index_select(0, owners)

    def places(self, rows: Tensor, slots: Tensor) -> Tensor:
        """Places that `append` writes tokens to, one for each token and head.

        rows, slots: of each token, [tokens].
        The same for all layers, so they are computed once per step.
        """
        _, _, num_heads, num_slots, _ = self.keys.shape
        heads = torch.arange(num_heads, device=rows.device)
        return ((rows[:, None] * num_heads + heads) * num_slots + slots[:, None]).flatten()

    def append(self, layer: int, key: Tensor, value: Tensor, places: Tensor) -> None:
        """Write tokens, [tokens, kv_heads, head_dim], to the places that `places` gave."""
        if self._flattened is not self.keys:
            flat = (each.flatten(1, 3).unbind() for each in (self.keys, self.values))
            self._flat, self._flattened = list(zip(*flat, strict=True)), self.keys
        keys, values = self._flat[layer]
        keys.index_copy_(0, places, key.reshape(-1, key.shape[-1]))
        values.index_copy_(0, places, value.reshape(-1, value.shape[-1]))

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [rows, kv_heads, slots, head_dim]."""
        return self.keys[number], self.values[number]

    def read(self, rows: slice, num_slots: int) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, keys and values of the first slots of some rows.

        [rows, kv_heads, slots, head_dim]. What `append` writes later shows in them.
        """
        parts = (each[:, rows, :, :num_slots].unbind() for each in (self.keys, self.values))
        return list(zip(*parts, strict=True))

    def copied(self, row: int, slots: slice) -> Tensor:
        """Keys and values of some slots of a row, [2, layers, kv_heads, slots, head_dim]."""
        return torch.stack((self.keys[:, row, :, slots], self.values[:, row, :, slots]))

    def put(self, row: int, parts: Sequence[Tensor]) -> None:
        """Begin a row with what `copied` gave, part after part."""
        if not parts:
            return
        num_slots = sum(part.shape[3] for part in parts)
        for i, cache in enumerate((self.keys, self.values)):
            # Into its place, because the copy is most of what a found prefix costs.
            torch.cat([part[i] for part in parts], dim=2, out=cache[:, row, :, :num_slots])

    def move(self, sources: Sequence[int], targets: Sequence[int], num_slots: int) -> None:
        """Copy the first `num_slots` slots of the source rows over the target rows."""
        for cache in (self.keys, self.values):
            # One by one: all at once, they would be copied twice.
            for source, target in zip(sources, targets, strict=True):
                cache[:, target, :, :num_slots] = cache[:, source, :, :num_slots]


def attend_all(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of many queries a text, [texts, tokens, heads, head_size] in and out.

    keys, values: [texts, kv_heads, slots, head_size]. mask: [texts, 1, tokens, slots], 0 or -inf;
    None for causal attention within whole texts.
    """
    attended = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=1.0,
        enable_gqa=True,
    )
    return attended.transpose(1, 2)


def attend_one(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of one query a row, [rows, heads, head_size] in and out.

    keys, values: [rows, kv_heads, slots, head_size]; mask as `length_mask` makes it, or None if all
    rows fill all slots.
    """
    if query.device.type == "cpu" and query.dtype != torch.float32:
        # As products, keys of 16 bits would be copied into another layout for each token.
        attended = F.scaled_dot_product_attention(
            query[:, :, None], keys, values, attn_mask=mask, scale=1.0, enable_gqa=True
        )
        return attended[:, :, 0]
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
