"""Next-token logits of Llama-shaped models, for many rows of different lengths at once.

The decoder computes with the model's own params as they are at the last `refresh`, adapters
included; nothing is copied but the matrices of small models. Hooks of the layers do not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludic_train.errors import UnsupportedModel
from ludic_train.inference.cache import KVCache, attend_all, attend_one, length_mask
from ludic_train.inference.layers import Layer, heads_of, inverse_rms, norm_of, read_layers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
# The other kinds of rotary embedding change with the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class Decoder:
    """A model as two functions, `prefill` and `decode`, over the rows of a key-value cache.

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

    def refresh(self) -> None:
        """Read the params as they are now, for all steps until the next call."""
        self._heads = heads_of(self._causal)
        self.layers = read_layers(self._causal, self._heads)
        self._last_norm = norm_of(self._causal.model.norm)

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
        longest = max(map(len, prompts))
        # On the right, where causal attention of the prompt's own tokens never looks.
        padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        repeats = torch.tensor(copies, device=self.device)
        rows = slice(first_row, first_row + sum(copies))
        hidden = self._causal.model.embed_tokens(torch.tensor(padded, device=self.device))
        for i in range(len(self.layers) - 1):
            hidden = self._read(i, hidden, repeats, rows)
        hidden = self._read_last(hidden, last, repeats, rows)
        # Only the last token of a prompt needs logits: those of all would be the largest tensor.
        return self._logits(hidden).repeat_interleave(repeats, dim=0)

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        num_slots = int(lengths.max()) + 1
        hidden = self._causal.model.embed_tokens(torch.from_numpy(ids).to(self.device))
        at = torch.from_numpy(lengths).to(self.device)
        cos, sin = self._cos.index_select(0, at), self._sin.index_select(0, at)
        slots = self.cache.slots_at(at)
        # Rows of one length, such as those of a group after its prompt, need no mask.
        is_ragged = lengths.min() + 1 < num_slots
        mask = length_mask(at, num_slots, hidden.dtype) if is_ragged else None
        for i, layer in enumerate(self.layers):
            heads = self._split(layer.heads(layer.before_attention(hidden)))
            query, key, value = self._turned_apart(heads, layer, cos, sin)
            self.cache.append(i, key, value, slots)
            keys, values = self.cache.read(i, len(ids), num_slots)
            hidden = _finished(layer, hidden, attend_one(query, keys, values, mask))
        return self._logits(hidden)

    def _read(self, i: int, hidden: Tensor, repeats: Tensor, rows: slice) -> Tensor:
        """Layer i over whole prompts, [prompts, tokens, hidden]."""
        layer, length = self.layers[i], hidden.shape[1]
        heads = self._split(layer.heads(layer.before_attention(hidden)))
        cos, sin = self._cos[:length], self._sin[:length]
        query, key, value = self._turned_apart(heads, layer, cos, sin)
        self.cache.write_prompts(i, key, value, repeats, rows)
        return _finished(layer, hidden, attend_all(query, key, value))

    def _read_last(self, hidden: Tensor, last: Tensor, repeats: Tensor, rows: slice) -> Tensor:
        """The last layer, [prompts, hidden], at the last tokens only.

        The other tokens' outputs are never used: of them it takes the keys and values alone.
        """
        layer, length, n = self.layers[-1], hidden.shape[1], self._heads.num_queries
        x = layer.before_attention(hidden)
        key, value = self._split(layer.keys_values(x)).chunk(2, dim=-2)
        cos, sin = self._cos[:length], self._sin[:length]
        key = self._turned(key, layer.weight[n:], layer.swapped[n:], cos, sin)
        self.cache.write_prompts(len(self.layers) - 1, key, value, repeats, rows)
        prompts = torch.arange(len(last), device=last.device)
        query = self._split(layer.queries(x[prompts, last]))
        cos, sin = self._cos[last], self._sin[last]
        query = self._turned(query, layer.weight[:n], layer.swapped[:n], cos, sin)
        mask = length_mask(last, length, x.dtype)
        attended = attend_one(query, key.transpose(1, 2), value.transpose(1, 2), mask)
        return _finished(layer, hidden[prompts, last], attended)

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
        logits: Tensor = self._causal.lm_head(self._last_norm(hidden))
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
