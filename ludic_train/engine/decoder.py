"""Next-token logits of Llama-shaped models, for many rows of different lengths at once.

The decoder computes with the model's own params as they are at the last `refresh`, adapters
included. It copies the matrices of small models, and on a CPU of plain ones of up to 1 GB. Hooks of
the layers do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludic_train.engine.cache import KVCache, attend_all, attend_one, length_mask
from ludic_train.engine.cpu_kernels import Kernels
from ludic_train.engine.families import causal_lm, max_positions
from ludic_train.engine.graphs import StepGraphs
from ludic_train.engine.layers import (
    Layer,
    has_bfloat16,
    head_of,
    heads_of,
    inverse_rms,
    layout_of,
    norm_of,
    read_layers,
)
from ludic_train.engine.prefix_limits import Mark
from ludic_train.engine.stack import Stack, stack_of

# Tokens of the longest text up to which prompts are attended to by the kernels, in which no text is
# padded; in longer ones torch's attention is faster.
BY_ROW = {torch.float32: 2048, torch.bfloat16: 256 if has_bfloat16() else 2048}

# Attention of queries, [tokens, heads, head_size], in a layer of this number.
_Attend = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Written:
    """Tokens that are written to the cache.

    cos, sin: of their positions, [tokens, 1, head_size]. rows, lengths: of each in the cache, its
    row and the slots that it attends to, [tokens]. places: as `KVCache` gives them.
    factors: from a layer, what heads are turned by: cosines and sines, [tokens, heads, head_size].
    """

    cos: Tensor
    sin: Tensor
    rows: Tensor
    lengths: Tensor
    places: Tensor
    factors: Callable[[Layer], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Tokens that are read, text after text, and the keys that they attend to.

    written: these tokens. last: index of each text's last token, [texts]; last_slots: its slot.
    cached: keys and values of the texts by layer, of which `num_slots` slots are read.
    width: tokens of the longest text. mask: as of `attend_all`.
    padded, real: index of a token for each place of [texts, width], and of a place for each token;
        None if all texts have as many tokens.
    """

    written: _Written
    last: Tensor
    last_slots: Tensor
    cached: Sequence[tuple[Tensor, Tensor]]
    num_slots: int
    width: int
    mask: Tensor | None
    padded: Tensor | None
    real: Tensor | None


class Decoder:
    """A model as functions over the rows of a key-value cache: `prefill` and `decode`.

    max_positions: longest text, in tokens. vocab_size: logits of a row.
    layers: as read by the last `refresh`.

    Call them under `torch.inference_mode()`, with the model in eval mode, after `refresh`.
    Raises UnsupportedModel for an architecture that it cannot compute exactly.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        self.max_positions = max_positions(self._causal.config)
        self.vocab_size = len(self._causal.lm_head.weight)
        self._heads = heads_of(self._causal)
        self.layers: list[Layer] = []
        self._layout = layout_of(self._causal)
        self._stack: Stack | None = None
        self._mark: Mark | None = None
        self._graphs = StepGraphs()
        self._is_captured = _can_be_captured(self._causal)
        self.release()

    @property
    def device(self) -> torch.device:
        """Device of the model now."""
        return _weight(self._causal).device

    def follow(self) -> None:
        """Move to the device and type of the model, where it has others than at the last call."""
        weight, cached = _weight(self._causal), self.cache.keys
        if (weight.device, weight.dtype) == (cached.device, cached.dtype):
            return
        self.cache.follow(weight)
        # Computed again by the next `reserve`.
        self._cos = self._sin = weight.new_zeros(0)
        self.refresh()

    @property
    def kernels(self) -> Kernels | None:
        """The compiled kernels for the model as it is now, if there are any."""
        return self._layout.kernels

    @property
    def is_costly(self) -> bool:
        """True if `refresh` takes longer than `params_mark`: it copies, or drops captured steps."""
        return self._layout.packed or self._is_captured

    def refresh(self, mark: Mark | None = None) -> None:
        """Read the params as they are now, for all steps until the next call.

        mark: of these params; nothing is read if the last ones had the same. None reads them.
        """
        if mark is not None and mark == self._mark:
            return
        self._mark = mark
        self._graphs.clear()
        self._is_captured = _can_be_captured(self._causal)
        self._heads = heads_of(self._causal)
        self._layout = layout_of(self._causal)
        self.layers = read_layers(self._causal, self._heads, self._layout)
        kernels = self._layout.kernels
        self._stack = stack_of(self.layers, self._heads, kernels) if kernels else None
        self._last_norm = norm_of(self._causal.model.norm, kernels)
        self._eps = torch.tensor([self._heads.eps or 0.0], device=self.device)
        self._head = head_of(self._causal, self._layout)

    def release(self) -> None:
        """Drop every row and its memory."""
        self._graphs.clear()
        weight, num_layers = _weight(self._causal), len(self._causal.model.layers)
        self.cache = KVCache(num_layers, self._heads.num_keys, self._heads.size, weight)
        self._cos = self._sin = weight.new_zeros(0)

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens."""
        self.cache.reserve(num_rows, num_slots)
        if len(self._cos) < self.cache.num_slots:
            # Computed once per growth of the cache and looked up by position in every step.
            positions = torch.arange(self.cache.num_slots, device=self.device)
            cos, sin = self._causal.model.rotary_emb(_weight(self._causal), positions[None])
            self._cos, self._sin = cos[0, :, None], _signed(sin[0, :, None])

    def prefill(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read text i from its token `starts[i]` on, into row `first_row + i`: logits, [texts, V].

        The row holds the tokens before. Read texts together that have as much left to read: the
        queries of shorter ones are padded.
        """
        ids = [token for text, start in zip(texts, starts, strict=True) for token in text[start:]]
        self.cache.check_room(first_row + len(texts), max(map(len, texts)))
        at = self._reading(list(map(len, texts)), starts, first_row)
        return self._read(torch.tensor(ids, device=self.device), at)

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        num_slots = int(lengths.max()) + 1
        self.cache.check_room(len(ids), num_slots)
        if self._is_captured:
            return self._graphs(self._step, ids, lengths, self.cache.keys)
        # Rows of one length, such as those of a group after its prompt, need no mask.
        is_ragged = bool(lengths.min() + 1 < num_slots)
        tokens, at = (torch.from_numpy(each).to(self.device) for each in (ids, lengths))
        return self._step(tokens, at, num_slots, is_ragged)

    def _step(self, ids: Tensor, at: Tensor, num_slots: int, is_ragged: bool = True) -> Tensor:
        """Logits [rows, V] of tokens [rows] at positions [rows], which may see `num_slots` slots.

        is_ragged: False if all rows fill these slots.
        """
        hidden: Tensor = self._causal.model.embed_tokens(ids)
        written = self._written(torch.arange(len(ids), device=self.device), at)
        if kernels := self._layout.kernels:
            return self._logits(*self._by_row(kernels, len(self.layers), hidden, written))
        mask = length_mask(at, num_slots, hidden.dtype) if is_ragged else None
        cached = self.cache.read(slice(len(ids)), num_slots)

        def attend_masked(layer: int, query: Tensor) -> Tensor:
            return attend_one(query, *cached[layer], mask)

        return self._logits(*self._through(self.layers, hidden, written, attend_masked))

    def _through(
        self, layers: Sequence[Layer], hidden: Tensor, written: _Written, attend: _Attend
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states after these layers, the first ones, and what is still to be added."""
        more = None
        for i, layer in enumerate(layers):
            hidden, x = layer.before_attention(hidden, more)
            query = self._stored(i, layer, self._split(layer.heads(x)), written)
            attended = attend(i, query).flatten(-2)
            hidden, x = layer.before_mlp(hidden, layer.after_attention(attended))
            more = layer.mlp(x)
        return hidden, more

    def _written(self, rows: Tensor, positions: Tensor) -> _Written:
        """Tokens at these positions of these rows, [tokens] each."""
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        return _Written(
            cos=cos,
            sin=sin,
            rows=rows,
            lengths=positions + 1,
            places=self.cache.places(rows, positions),
            factors=self._factors(cos, sin),
        )

    def _by_row(
        self, kernels: Kernels, number: int, hidden: Tensor, written: _Written
    ) -> tuple[Tensor, Tensor | None]:
        """`_through` so many layers by the kernels, where each token attends to its own row."""
        rows, lengths = written.rows, written.lengths
        if self._stack and number:
            turns, cached = (written.cos, written.sin), (self.cache.keys, self.cache.values)
            return self._stack.through(number, hidden, turns, cached, rows, lengths, written.places)

        def attend(layer: int, query: Tensor) -> Tensor:
            return kernels.attended(query, self.cache.layer(layer), rows, lengths)

        return self._through(self.layers[:number], hidden, written, attend)

    def _stored(self, number: int, layer: Layer, heads: Tensor, written: _Written) -> Tensor:
        """Turned queries of heads, [tokens, heads, head_size]; keys and values go to the cache."""
        if kernels := self._layout.kernels:
            turns, weights = (written.cos, written.sin), (layer.weight, layer.swapped)
            cached = self.cache.layer(number)
            return kernels.stored(heads, turns, weights, cached, written.places, self._heads.eps)
        query, key, value = self._turned_apart(heads, *written.factors(layer))
        self.cache.append(number, key, value, written.places)
        return query

    def _reading(self, lengths: Sequence[int], starts: Sequence[int], first_row: int) -> _Reading:
        """Positions, cache slots and mask of texts that are read from token `starts[i]` on."""
        ends = torch.tensor(lengths, device=self.device)
        first = torch.tensor(starts, device=self.device)
        counts, num_slots = ends - first, max(lengths)
        width = max(end - start for end, start in zip(lengths, starts, strict=True))
        columns = torch.arange(width, device=self.device)
        real = (columns < counts[:, None]).flatten().nonzero()[:, 0]
        row, column = real // width, real % width
        positions, after = first[row] + column, counts.cumsum(0)
        # Padding repeats a text's last token.
        padded = (after - counts)[:, None] + columns.minimum(counts[:, None] - 1)
        mask = None
        if any(starts):
            slots = (first[:, None] + columns).clamp(max=num_slots - 1).flatten()
            mask = length_mask(slots, num_slots, self.cache.keys.dtype)
            mask = mask.view(len(lengths), 1, width, num_slots)
        is_padded = len(real) < len(lengths) * width
        return _Reading(
            written=self._written(first_row + row, positions),
            last=after - 1,
            last_slots=ends - 1,
            cached=self.cache.read(slice(first_row, first_row + len(lengths)), num_slots),
            num_slots=num_slots,
            width=width,
            mask=mask,
            padded=padded.flatten() if is_padded else None,
            real=real if is_padded else None,
        )

    def _read(self, ids: Tensor, at: _Reading) -> Tensor:
        """Logits of the texts' last tokens, [texts, V]."""
        hidden: Tensor = self._causal.model.embed_tokens(ids)
        kernels, before = self._layout.kernels, len(self.layers) - 1
        if kernels and at.num_slots <= BY_ROW[kernels.dtype]:
            hidden, more = self._by_row(kernels, before, hidden, at.written)
        else:
            attend = partial(self._attended, at)
            hidden, more = self._through(self.layers[:before], hidden, at.written, attend)
        # Only the last token of a prompt needs logits: those of all would be the largest tensor.
        return self._logits(*self._read_last(hidden, more, at))

    def _attended(self, at: _Reading, layer: int, query: Tensor) -> Tensor:
        """Attention of the tokens that are read, [tokens, heads, head_size] in and out."""
        keys, values = at.cached[layer]
        # Only here do texts need one width: the products, most of the work, see no padding.
        if at.padded is not None:
            query = query.index_select(0, at.padded)
        query = query.view(len(keys), at.width, *query.shape[1:])
        attended = attend_all(query, keys, values, at.mask).flatten(0, 1)
        return attended if at.real is None else attended.index_select(0, at.real)

    def _read_last(
        self, hidden: Tensor, more: Tensor | None, at: _Reading
    ) -> tuple[Tensor, Tensor]:
        """The last layer, at the last tokens only, as `_through` gives it.

        The other tokens' outputs are never used: of them it takes the keys and values alone.
        """
        layer, n, number = self.layers[-1], self._heads.num_queries, len(self.layers) - 1
        cos, sin = at.written.factors(layer)
        hidden, x = layer.before_attention(hidden, more)
        key, value = self._split(layer.keys_values(x)).chunk(2, dim=-2)
        key = self._turned(key, cos[:, n:], sin[:, n:])
        self.cache.append(number, key, value, at.written.places)
        query = self._split(layer.queries(x[at.last]))
        query = self._turned(query, cos[at.last, :n], sin[at.last, :n])
        mask = length_mask(at.last_slots, at.num_slots, x.dtype)
        attended = attend_one(query, *at.cached[number], mask).flatten(-2)
        hidden, x = layer.before_mlp(hidden[at.last], layer.after_attention(attended))
        return hidden, layer.mlp(x)

    def _split(self, heads: Tensor) -> Tensor:
        """Heads that lie side by side, [..., heads, head_size]."""
        return heads.view(*heads.shape[:-1], -1, self._heads.size)

    def _factors(self, cos: Tensor, sin: Tensor) -> Callable[[Layer], tuple[Tensor, Tensor]]:
        """As of `_Written`.

        The norm multiplies a head by a number and its weight, and rotating is linear, so the weight
        goes into the cosines and sines, and the number comes last.
        """

        def factors(layer: Layer) -> tuple[Tensor, Tensor]:
            return cos * layer.weight, sin * layer.swapped

        if self._heads.eps is not None:
            return factors
        # Without norms of heads the weights of all layers are equal.
        once = cache(partial(factors, self.layers[0]))
        return lambda _: once()

    def _turned_apart(
        self, heads: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned, and values."""
        # Turned side by side, in half as many calls: a small model's time goes to calls.
        queries, keys = self._heads.num_queries, self._heads.num_keys
        both, value = heads.split_with_sizes((queries + keys, keys), dim=-2)
        query, key = self._turned(both, cos, sin).split_with_sizes((queries, keys), dim=-2)
        return query, key, value

    def _turned(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries or keys, [tokens, heads, head_size], normed and rotated (arXiv:2104.09864)."""
        rolled = heads.roll(self._heads.size // 2, dims=-1)
        turned = (heads * cos).addcmul_(rolled, sin)
        if self._heads.eps is None:
            return turned
        return turned.mul_(inverse_rms(heads, self._eps))

    def _logits(self, hidden: Tensor, more: Tensor | None) -> Tensor:
        """Logits of last hidden states, of which a part is still to be added, [..., V]."""
        return self._head(self._last_norm(hidden, more)[1])


def _can_be_captured(causal: PreTrainedModel) -> bool:
    """True for a model on a card whose steps have the same calls for any tokens."""
    # A card has to tell which tokens an expert reads.
    has_experts = any("experts" in name for name, _ in causal.named_modules())
    return _weight(causal).is_cuda and not has_experts


def _weight(causal: PreTrainedModel) -> Tensor:
    """A tensor with the device and type of the model."""
    weight: Tensor = causal.model.embed_tokens.weight
    return weight


def _signed(sin: Tensor) -> Tensor:
    """`sin` for rotating by exchanged halves, neither of them negated."""
    # The sign moves into the sines once, instead of into half of every head in every step.
    low, high = sin.chunk(2, dim=-1)
    return torch.cat((-low, high), dim=-1)
