"""Keys and values of the sequences in flight and of earlier texts, and attention to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ludic_train.models.modules import is_adapted_layer

# Slots are added in multiples of this many, because each growth copies the whole cache.
SLOTS = 32
# Tokens of a block.
BLOCK = 16
# Shorter prefixes are read again: copying them would save little. They also repeat bit for bit.
LEAST = 64

Ids = tuple[int, ...]
# Blocks of one text from its first token on, each [2, layers, kv_heads, BLOCK, head_dim].
Prefix = tuple[Tensor, ...]
# The block before, by its number, and the block's own tokens.
_Key = tuple[int, Ids]
_ROOT = 0


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
        self.keys, self.values = (
            _grown(tensor, rows, slots) for tensor in (self.keys, self.values)
        )

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
        """Write tokens, [tokens, kv_heads * head_dim], to the places that `places` gave."""
        if self._flattened is not self.keys:
            flat = (each.flatten(1, 3).unbind() for each in (self.keys, self.values))
            self._flat, self._flattened = list(zip(*flat, strict=True)), self.keys
        keys, values = self._flat[layer]
        keys.index_copy_(0, places, key.reshape(-1, keys.shape[-1]))
        values.index_copy_(0, places, value.reshape(-1, values.shape[-1]))

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
            query[:, :, None], keys, values, attn_mask=mask, enable_gqa=True
        )
        return attended[:, :, 0]
    # Heads that share keys are queries of one attention: [rows, kv_heads, shared, head_size], so
    # that keys and values are not repeated for each of them.
    scaled = query * query.shape[-1] ** -0.5
    grouped = scaled.view(query.shape[0], keys.shape[1], -1, query.shape[-1])
    scores = torch.matmul(grouped, keys.transpose(-1, -2))
    if mask is not None:
        scores += mask
    weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
    return torch.matmul(weights, values).reshape(query.shape)


def length_mask(lengths: Tensor, num_slots: int, dtype: torch.dtype) -> Tensor:
    """0 for the slots up to `lengths[i]`, -inf after, [rows, 1, 1, num_slots]."""
    beyond = torch.arange(num_slots, device=lengths.device) > lengths[:, None]
    mask = torch.zeros(beyond.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(beyond, -torch.inf)[:, None, None]


def _grown(tensor: Tensor, num_rows: int, num_slots: int) -> Tensor:
    layers, rows, heads, slots, dim = tensor.shape
    # Zeros, since a masked slot still meets the arithmetic, and NaN would survive the mask.
    grown = tensor.new_zeros(layers, num_rows, heads, num_slots, dim)
    grown[:, :rows, :, :slots] = tensor
    return grown


class PrefixCache:
    """Keys and values of texts that were read, for later texts that begin with the same tokens.

    They depend on the tokens up to their own and on the params alone, so they can be used again as
    they are. They are kept in blocks, and a block is found by the tokens up to its end. All are of
    one version of the params; the least recently used are dropped.

    max_bytes: memory of all blocks; 0 keeps none. version: as of the last `renew`.
    num_queried, num_found: tokens that were looked up so far, and those of them that were found.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.version: int | None = None
        self.num_queried = self.num_found = 0
        self._params: object = None
        # Numbers are never used twice, so what followed a block that was dropped is not found.
        self._blocks: OrderedDict[_Key, tuple[int, Tensor]] = OrderedDict()
        self._last_number = _ROOT

    @property
    def num_bytes(self) -> int:
        """Memory of all blocks, in bytes."""
        return sum(block.nbytes for _, block in self._blocks.values())

    def clear(self) -> None:
        """Drop all blocks."""
        self._blocks.clear()

    def renew(self, params: object, version: int | None) -> None:
        """Drop all blocks unless the params and their version are those of the last call.

        params: equal for equal params.
        """
        if (params, version) != (self._params, self.version):
            self.clear()
            self._params, self.version = params, version

    def find(self, ids: Ids) -> Prefix:
        """The longest kept prefix of a text, without its last token; empty below LEAST tokens."""
        if not self.max_bytes:
            return ()
        # The logits of the last token are not kept, so it is always read.
        path = self._path(ids[:-1])
        if len(path) * BLOCK < LEAST:
            path = []
        self._use(path)
        return tuple(self._blocks[key][1] for key in path)

    def count(self, num_queried: int, num_found: int) -> None:
        """Add to the counts."""
        self.num_queried += num_queried
        self.num_found += num_found

    def store(self, ids: Ids, cache: KVCache, row: int) -> None:
        """Keep the text of a row, in whole blocks; as much of its beginning as there is room for.

        ids: the row's tokens. Does nothing for a text below LEAST tokens.
        """
        if not self.max_bytes or len(ids) < LEAST:
            return
        room = self.max_bytes // (cache.token_bytes * BLOCK)
        ids = ids[: min(len(ids) // BLOCK, room) * BLOCK]
        path = self._path(ids)
        # So that what this text begins with is not dropped to make room for the rest of it.
        self._use(path)
        number = self._blocks[path[-1]][0] if path else _ROOT
        for start in range(len(path) * BLOCK, len(ids), BLOCK):
            if len(self._blocks) >= room:
                self._blocks.popitem(last=False)
            slots, key = slice(start, start + BLOCK), (number, ids[start : start + BLOCK])
            self._last_number = number = self._last_number + 1
            self._blocks[key] = (number, cache.copied(row, slots))
            path.append(key)
        self._use(path)

    def _path(self, ids: Ids) -> list[_Key]:
        """Keys of the kept blocks that the text begins with."""
        path: list[_Key] = []
        number = _ROOT
        for start in range(0, len(ids) - BLOCK + 1, BLOCK):
            key = (number, ids[start : start + BLOCK])
            if key not in self._blocks:
                break
            number = self._blocks[key][0]
            path.append(key)
        return path

    def _use(self, path: list[_Key]) -> None:
        # The last block first: it is of no use without those before, so it is dropped before them.
        for key in reversed(path):
            self._blocks.move_to_end(key)


def length_of(prefix: Prefix) -> int:
    """Tokens of a prefix."""
    return BLOCK * len(prefix)


def common_prefix(texts: Collection[Ids]) -> Ids:
    """The longest common prefix of all texts, in whole blocks."""
    # What the first and the last have in common, in their order, all have.
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    size = next((i for i, (one, other) in pairs if one != other), min(len(first), len(last)))
    return first[: size // BLOCK * BLOCK]


def params_mark(model: nn.Module) -> tuple[object, ...]:
    """A value that changes whenever a param does, or the adapters in use.

    It reads all params once, as a step of a single row does: torch's own counters of changes do not
    see writes through `param.data`.
    """
    params = [each.detach() for each in model.parameters()]
    # One transfer for all of them where they are on a GPU.
    sums = torch.stack([_checksum(param) for param in params]).tolist()
    counters = [0 if param.is_inference() else param._version for param in params]
    adapters = [
        (module.disable_adapters, tuple(module.active_adapters), tuple(module.merged_adapters))
        for module in model.modules()
        if is_adapted_layer(module)
    ]
    return (*sums, *counters, *adapters)


def _checksum(param: Tensor) -> Tensor:
    """Sum of the param's bits as 64-bit integers, which wraps around: [], exact in any order."""
    flat = param.reshape(-1)
    per_word = 8 // flat.element_size()
    # A view needs whole and aligned words.
    if flat.numel() % per_word or flat.storage_offset() % per_word:
        flat = F.pad(flat, (0, -flat.numel() % per_word or per_word))
    return flat.view(torch.int64).sum()
