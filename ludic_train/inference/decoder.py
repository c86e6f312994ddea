"""Next-token logits of Llama-shaped models, for many rows of different lengths at once.

The decoder computes with the model's own params as they are at the last `refresh`, adapters
included. It copies the matrices of small models, and on a CPU of plain ones of up to 1 GB. Hooks of
the layers do not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludic_train.errors import UnsupportedModel
from ludic_train.inference.cache import KVCache, Store, attend_all, attend_one, length_mask
from ludic_train.inference.layers import (
    Layer,
    head_of,
    heads_of,
    inverse_rms,
    layout_of,
    norm_of,
    read_layers,
)
from ludic_train.inference.prefix_limits import Mark

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
# The other kinds of rotary embedding change with the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Positions of the tokens that are read, and the keys that they attend to.

    cos, sin: [tokens, 1, head_size], or one of these for each text.
    last: index of each text's last token among those read, [texts]; last_slots: its slot.
    mask: as of `attend_all`. store: of keys and values [texts, tokens, kv_heads, head_size].
    """

    cos: Tensor
    sin: Tensor
    last: Tensor
    last_slots: Tensor
    mask: Tensor | None
    store: Store


class Decoder:
    """A model as functions over the rows of a key-value cache: `prefill`, `extend` and `decode`.

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
        self._mark: Mark | None = None
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
    def has_copies(self) -> bool:
        """True if there are copies of large matrices, made by `refresh`."""
        return self._layout.packed

    def refresh(self, mark: Mark | None = None) -> None:
        """Read the params as they are now, for all steps until the next call.

        mark: of these params; nothing is read if the last ones had the same. None reads them.
        """
        if mark is not None and mark == self._mark:
            return
        self._mark = mark
        self._heads = heads_of(self._causal)
        self._layout = layout_of(self._causal)
        self.layers = read_layers(self._causal, self._heads, self._layout)
        self._last_norm = norm_of(self._causal.model.norm)
        self._head = head_of(self._causal, self._layout)

    def release(self) -> None:
        """Drop every row and its memory."""
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
        self, prompts: Sequence[Sequence[int]], copies: Sequence[int], first_row: int
    ) -> Tensor:
        """Read each prompt once, into `copies[i]` consecutive rows: next-token logits, [rows, V].

        Shorter prompts are padded to the longest, so read prompts apart that differ much.
        """
        ids = self._padded(prompts)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        repeats = torch.tensor(copies, device=self.device)
        rows = slice(first_row, first_row + sum(copies))

        def store(layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.cache.write_prompts(layer, key, value, repeats, rows)
            return key.transpose(1, 2), value.transpose(1, 2)

        cos, sin = self._cos[: ids.shape[1]], self._sin[: ids.shape[1]]
        hidden = self._read(ids, _Reading(cos, sin, last, last, None, store))
        return self._logits(hidden).repeat_interleave(repeats, dim=0)

    def extend(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read text i from its token `starts[i]` on, into row `first_row + i`: logits, [texts, V].

        The row holds the tokens before. Read texts together that have as much left to read.
        """
        ids = self._padded([text[start:] for text, start in zip(texts, starts, strict=True)])
        lengths = torch.tensor([len(text) for text in texts], device=self.device)
        first, tokens = torch.tensor(starts, device=self.device), torch.arange(ids.shape[1])
        positions, num_slots = first[:, None] + tokens.to(self.device), max(map(len, texts))
        # Padding has no slots of its own, so its keys are not kept.
        row, column = (positions < lengths[:, None]).nonzero(as_tuple=True)
        places = self.cache.places(first_row + row, positions[row, column])
        rows = slice(first_row, first_row + len(texts))

        def store(layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.cache.append(layer, key[row, column], value[row, column], places)
            return self.cache.read(layer, rows, num_slots)

        positions = positions.clamp(max=num_slots - 1)
        mask = length_mask(positions.flatten(), num_slots, self.cache.keys.dtype)
        mask = mask.view(len(texts), 1, -1, num_slots)
        cos, sin = self._cos[positions], self._sin[positions]
        at = _Reading(cos, sin, lengths - first - 1, lengths - 1, mask, store)
        return self._logits(self._read(ids, at))

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        num_slots = int(lengths.max()) + 1
        hidden = self._causal.model.embed_tokens(torch.from_numpy(ids).to(self.device))
        at = torch.from_numpy(lengths).to(self.device)
        cos, sin = self._cos.index_select(0, at), self._sin.index_select(0, at)
        places = self.cache.places(torch.arange(len(ids), device=self.device), at)
        # Rows of one length, such as those of a group after its prompt, need no mask.
        is_ragged = lengths.min() + 1 < num_slots
        mask = length_mask(at, num_slots, hidden.dtype) if is_ragged else None
        for i, layer in enumerate(self.layers):
            heads = self._split(layer.heads(layer.before_attention(hidden)))
            query, key, value = self._turned_apart(heads, layer, cos, sin)
            self.cache.append(i, key, value, places)
            keys, values = self.cache.read(i, slice(len(ids)), num_slots)
            hidden = _finished(layer, hidden, attend_one(query, keys, values, mask))
        return self._logits(hidden)

    def _padded(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Ids of the texts, [texts, tokens of the longest]."""
        longest = max(map(len, texts))
        # On the right, where causal attention of a text's own tokens never looks.
        padded = [[*text, *[0] * (longest - len(text))] for text in texts]
        return torch.tensor(padded, device=self.device)

    def _read(self, ids: Tensor, at: _Reading) -> Tensor:
        """Last hidden states of the texts' last tokens, [texts, hidden]."""
        hidden: Tensor = self._causal.model.embed_tokens(ids)
        for i, layer in enumerate(self.layers[:-1]):
            heads = self._split(layer.heads(layer.before_attention(hidden)))
            query, key, value = self._turned_apart(heads, layer, at.cos, at.sin)
            attended = attend_all(query, *at.store(i, key, value), at.mask)
            hidden = _finished(layer, hidden, attended)
        # Only the last token of a prompt needs logits: those of all would be the largest tensor.
        return self._read_last(hidden, at)

    def _read_last(self, hidden: Tensor, at: _Reading) -> Tensor:
        """The last layer, [texts, hidden], at the last tokens only.

        The other tokens' outputs are never used: of them it takes the keys and values alone.
        """
        layer, n = self.layers[-1], self._heads.num_queries
        x = layer.before_attention(hidden)
        key, value = self._split(layer.keys_values(x)).chunk(2, dim=-2)
        key = self._turned(key, layer.weight[n:], layer.swapped[n:], at.cos, at.sin)
        keys, values = at.store(len(self.layers) - 1, key, value)
        texts = torch.arange(len(hidden), device=hidden.device)
        query = self._split(layer.queries(x[texts, at.last]))
        cos, sin = self._cos[at.last_slots], self._sin[at.last_slots]
        query = self._turned(query, layer.weight[:n], layer.swapped[:n], cos, sin)
        mask = length_mask(at.last_slots, keys.shape[2], x.dtype)
        attended = attend_one(query, keys, values, mask)
        return _finished(layer, hidden[texts, at.last], attended)

    def _split(self, heads: Tensor) -> Tensor:
        """Heads that lie side by side, [..., heads, head_size]."""
        return heads.view(*heads.shape[:-1], -1, self._heads.size)

    def _turned_apart(
        self, heads: Tensor, layer: Layer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned, and values."""
        # Turned side by side, in half as many calls: a small model's time goes to calls.
        queries, keys = self._heads.num_queries, self._heads.num_keys
        both, value = heads.split_with_sizes((queries + keys, keys), dim=-2)
        turned = self._turned(both, layer.weight, layer.swapped, cos, sin)
        query, key = turned.split_with_sizes((queries, keys), dim=-2)
        return query, key, value

    def _turned(
        self, heads: Tensor, weight: Tensor, swapped: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Queries or keys, [..., heads, head_size], normed and rotated (arXiv:2104.09864).

        The norm multiplies a head by a number and its weight, and rotating is linear, so the weight
        goes into the few cosines and sines, and the number comes last.
        """
        rolled = heads.roll(self._heads.size // 2, dims=-1)
        turned = (heads * (cos * weight)).addcmul_(rolled, sin * swapped)
        if self._heads.eps is None:
            return turned
        return turned.mul_(inverse_rms(heads, self._heads.eps))

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits of last hidden states, [..., V]."""
        logits: Tensor = self._head(self._last_norm(hidden))
        return logits


def causal_lm(model: PreTrainedModel) -> PreTrainedModel:
    """The language model itself, inside the adapters that wrap it."""
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if inner is None or inner.config.model_type not in FAMILIES:
        kind = type(model).__name__ if inner is None else inner.config.model_type
        raise UnsupportedModel(
            f"the local engine cannot run {kind!r} models, only {', '.join(FAMILIES)}; "
            "serve others with vLLM"
        )
    return inner


def max_positions(config: PretrainedConfig) -> int:
    """Tokens of the longest sequence that is computed exactly: inside any sliding window.

    Raises UnsupportedModel for a rotary embedding that depends on the length of the text.
    """
    # These give a position the same angle in every text, so cosines can be computed in advance.
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in ROPE_TYPES:
        raise UnsupportedModel(f"rotary embedding {rope!r} is none of {', '.join(ROPE_TYPES)}")
    window: int | None = None if config.model_type == "llama" else config.sliding_window
    positions: int = config.max_position_embeddings
    return positions if window is None else min(positions, window)


def _weight(causal: PreTrainedModel) -> Tensor:
    """A tensor with the device and type of the model."""
    weight: Tensor = causal.model.embed_tokens.weight
    return weight


def _signed(sin: Tensor) -> Tensor:
    """`sin` for rotating by exchanged halves, neither of them negated."""
    # The sign moves into the sines once, instead of into half of every head in every step.
    low, high = sin.chunk(2, dim=-1)
    return torch.cat((-low, high), dim=-1)


def _finished(layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
    """The rest of a layer: output projection, residuals, MLP."""
    hidden = hidden + layer.after_attention(attended.flatten(-2))
    return hidden + layer.mlp(layer.before_mlp(hidden))
