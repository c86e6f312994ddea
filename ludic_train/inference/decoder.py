"""Next-token logits of Llama-shaped models, for many rows of different lengths at once.

The decoder calls the model's own projections, norms and head, so it always computes with the params
of this moment, adapters included; only attention and the order of things are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ludic_train.errors import UnsupportedModel
from ludic_train.inference.cache import KVCache

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# The other kinds of rotary embedding change with the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class Decoder:
    """A model as two functions, `prefill` and `decode`, over the rows of a key-value cache.

    Call it under `torch.inference_mode()`, with the model in eval mode.
    Raises UnsupportedModel for an architecture that it cannot compute exactly.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        self.max_positions = max_positions(self._causal.config)
        self._layers = list(self._causal.model.layers)
        self._norms_heads = self._causal.config.model_type == "qwen3"
        self.release()

    @property
    def device(self) -> torch.device:
        """Where the model is now."""
        return _weight(self._causal).device

    def release(self) -> None:
        """Forget every row and give its memory back."""
        weight, attention = _weight(self._causal), self._layers[0].self_attn
        heads = self._causal.config.num_key_value_heads
        self.cache = KVCache(len(self._layers), heads, attention.head_dim, weight)
        self._cos = self._sin = weight.new_zeros(0)

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens."""
        self.cache.reserve(num_rows, num_slots)
        if len(self._cos) < self.cache.num_slots:
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
        padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        repeats = torch.tensor(copies, device=self.device)
        rows = slice(first_row, first_row + sum(copies))
        hidden = self._causal.model.embed_tokens(torch.tensor(padded, device=self.device))
        for i in range(len(self._layers) - 1):
            hidden = self._read(i, hidden, repeats, rows)
        hidden = self._read_last(hidden, last, repeats, rows)
        return self._logits(hidden).repeat_interleave(repeats, dim=0)

    def decode(self, ids: Tensor, lengths: Tensor, num_slots: int) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V].

        `num_slots` is the greatest length after that.
        """
        hidden = self._causal.model.embed_tokens(ids)
        cos, sin = self._cos[lengths], self._sin[lengths]
        mask = _length_mask(lengths, num_slots, hidden.dtype)
        for i, layer in enumerate(self._layers):
            x = layer.input_layernorm(hidden)
            query, key = self._query(i, x, cos, sin), self._key(i, x, cos, sin)
            keys, values = self.cache.append(i, key, self._value(i, x), lengths, num_slots)
            hidden = _after_attention(layer, hidden, _attend_one(query, keys, values, mask))
        return self._logits(hidden)

    def _read(self, i: int, hidden: Tensor, repeats: Tensor, rows: slice) -> Tensor:
        """Layer i over whole prompts, [prompts, tokens, hidden]."""
        layer, length = self._layers[i], hidden.shape[1]
        x, cos, sin = layer.input_layernorm(hidden), self._cos[:length], self._sin[:length]
        query, key, value = (
            self._query(i, x, cos, sin),
            self._key(i, x, cos, sin),
            self._value(i, x),
        )
        self.cache.write_prompts(i, key, value, repeats, rows)
        attended = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        return _after_attention(layer, hidden, attended.transpose(1, 2))

    def _read_last(self, hidden: Tensor, last: Tensor, repeats: Tensor, rows: slice) -> Tensor:
        """The last layer, [prompts, hidden], at the last tokens only.

        The other tokens' outputs are never used: of them it takes the keys and values alone.
        """
        i, length = len(self._layers) - 1, hidden.shape[1]
        x = self._layers[i].input_layernorm(hidden)
        key, value = self._key(i, x, self._cos[:length], self._sin[:length]), self._value(i, x)
        self.cache.write_prompts(i, key, value, repeats, rows)
        prompts = torch.arange(len(last), device=last.device)
        query = self._query(i, x[prompts, last], self._cos[last], self._sin[last])
        attended = _attend_one(
            query, key.transpose(1, 2), value.transpose(1, 2), _length_mask(last, length, x.dtype)
        )
        return _after_attention(self._layers[i], hidden[prompts, last], attended)

    def _query(self, i: int, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attention = self._layers[i].self_attn
        query = attention.q_proj(x).unflatten(-1, (-1, attention.head_dim))
        return _rotated(attention.q_norm(query) if self._norms_heads else query, cos, sin)

    def _key(self, i: int, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attention = self._layers[i].self_attn
        key = attention.k_proj(x).unflatten(-1, (-1, attention.head_dim))
        return _rotated(attention.k_norm(key) if self._norms_heads else key, cos, sin)

    def _value(self, i: int, x: Tensor) -> Tensor:
        attention = self._layers[i].self_attn
        value: Tensor = attention.v_proj(x).unflatten(-1, (-1, attention.head_dim))
        return value

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._causal.lm_head(self._causal.model.norm(hidden))
        return logits


def causal_lm(model: PreTrainedModel) -> PreTrainedModel:
    """The language model itself, inside whatever adapters wrap it."""
    from transformers import PreTrainedModel

    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if inner is None or inner.config.model_type not in FAMILIES:
        kind = type(model).__name__ if inner is None else inner.config.model_type
        raise UnsupportedModel(
            f"the embedded sampler cannot run {kind!r} models, only {', '.join(FAMILIES)}; "
            "serve others with vLLM"
        )
    return inner


def max_positions(config: PretrainedConfig) -> int:
    """How long a sequence the decoder computes exactly: inside any sliding window.

    Raises UnsupportedModel for a rotary embedding that depends on the length of the text.
    """
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in ROPE_TYPES:
        raise UnsupportedModel(f"rotary embedding {rope!r} is none of {', '.join(ROPE_TYPES)}")
    window: int | None = None if config.model_type == "llama" else config.sliding_window
    positions: int = config.max_position_embeddings
    return positions if window is None else min(positions, window)


def _weight(causal: PreTrainedModel) -> Tensor:
    weight: Tensor = causal.model.embed_tokens.weight
    return weight


def _signed(sin: Tensor) -> Tensor:
    """`sin` for `_rotated`, which swaps the halves without negating one."""
    low, high = sin.chunk(2, dim=-1)
    return torch.cat((-low, high), dim=-1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of [..., heads, head_dim] (Su et al. 2021, arXiv:2104.09864)."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def _length_mask(lengths: Tensor, num_slots: int, dtype: torch.dtype) -> Tensor:
    """0 for the slots up to `lengths[i]`, -inf after, [rows, 1, 1, num_slots]."""
    hidden = torch.arange(num_slots, device=lengths.device) > lengths[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(hidden, -torch.inf)[:, None, None]


def _attend_one(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of one query a row, [rows, heads, dim], over keys [rows, kv_heads, slots, dim]."""
    # Heads that share keys are queries of one attention: [rows, kv_heads, shared, dim].
    grouped = query.view(len(query), keys.shape[1], -1, query.shape[-1])
    return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1, 2)


def _after_attention(layer: GradientCheckpointingLayer, hidden: Tensor, attended: Tensor) -> Tensor:
    """The rest of a layer: output projection, residuals, MLP."""
    hidden = hidden + layer.self_attn.o_proj(attended.flatten(-2))
    mlp: Tensor = layer.mlp(layer.post_attention_layernorm(hidden))
    return hidden + mlp
