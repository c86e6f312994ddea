"""Next-token logits of Llama-shaped models, for many rows of different lengths at once.

The decoder computes by torch's products and attention with the model's own params, adapters
included. Hooks of the layers do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from ludic_train.engine.cache import KVCache, attend_all, attend_one, length_mask
from ludic_train.errors import UnsupportedModel

if TYPE_CHECKING:
    from transformers.modeling_layers import GradientCheckpointingLayer
    from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
# The other kinds of rotary embedding change with the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
RMS_NORMS = (
    "LlamaRMSNorm",
    "MistralRMSNorm",
    "Qwen2RMSNorm",
    "Qwen3RMSNorm",
    "MixtralRMSNorm",
    "Qwen3MoeRMSNorm",
)
# Multiplications from which oneDNN's product of float32 is faster than that which torch takes on a
# CPU: up to three times on processors of other makers than MKL's.
DNN_PRODUCTS = 2**20

Map = Callable[[Tensor], Tensor]
# Attention of queries, [tokens, heads, head_size], to the keys and values of a layer.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a model as functions of tokens, with the params of this moment.

    head_weight: of the norm of queries and keys, [queries + keys, head_size]; None without one.
    """

    attention_norm: Map
    query: Map
    key: Map
    value: Map
    attention_output: Map
    mlp_norm: Map
    mlp: Map
    head_weight: Tensor | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Tokens of a forward pass, text after text, and how they attend.

    cos, sin: of their positions, [tokens, 1, head_size]. places: as `KVCache` gives them.
    rows, num_slots: those of the cache that are attended to.
    attend: attention of the tokens. last: index of each text's last token, [texts], and attend_last
        their attention; None where each token is a text's last.
    """

    cos: Tensor
    sin: Tensor
    places: Tensor
    rows: slice
    num_slots: int
    attend: Attend
    last: Tensor | None = None
    attend_last: Attend | None = None


class Decoder:
    """A model as functions over the rows of a key-value cache: `prefill` and `decode`.

    max_positions: longest text, in tokens. vocab_size: logits of a row.

    Call them under `torch.inference_mode()`, with the model in eval mode, after `refresh`; only for
    a model that `is_known`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        config, self._attention = self._causal.config, self._causal.model.layers[0].self_attn
        self.max_positions = max_positions(config)
        self.vocab_size = len(self._causal.lm_head.weight)
        self._num_queries, self._num_keys = config.num_attention_heads, config.num_key_value_heads
        self._layers: list[Layer] = []
        self.release()

    def follow(self) -> bool:
        """True if the model has another device or type since the last call; rows are dropped."""
        weight, cached = self._causal.model.embed_tokens.weight, self.cache.keys
        if (weight.device, weight.dtype) == (cached.device, cached.dtype):
            return False
        self.release()
        return True

    def refresh(self) -> None:
        """Find the params, whose modules may have been replaced or wrapped, for all later steps."""
        self._layers = [read_layer(layer) for layer in self._causal.model.layers]
        self._norm = norm_of(self._causal.model.norm)
        self._head = product_of(self._causal.lm_head)
        if self._layers[0].head_weight is not None:
            eps = self._attention.q_norm.variance_epsilon
            self._eps = torch.tensor([eps], device=self.cache.keys.device)

    def release(self) -> None:
        """Drop every row and its memory."""
        weight = self._causal.model.embed_tokens.weight
        num_layers, size = len(self._causal.model.layers), self._attention.head_dim
        self.cache = KVCache(num_layers, self._num_keys, size, weight)
        self._cos = self._sin = weight.new_zeros(0)

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens."""
        self.cache.reserve(num_rows, num_slots)
        if len(self._cos) < self.cache.num_slots:
            # Computed once per growth of the cache and looked up by position in every step.
            weight = self._causal.model.embed_tokens.weight
            positions = torch.arange(self.cache.num_slots, device=weight.device)
            cos, sin = self._causal.model.rotary_emb(weight, positions[None])
            # The sign of the rotated half is in the sines, instead of in every head.
            low, high = sin.chunk(2, dim=-1)
            self._cos, self._sin = cos[0, :, None], torch.cat((-low, high), dim=-1)[0, :, None]

    def prefill(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read text i from its token `starts[i]` on, into row `first_row + i`: logits, [texts, V].

        The row holds the tokens before. Read texts together that have as much left to read: the
        queries of shorter ones are padded.
        """
        device = self.cache.keys.device
        ids = [token for text, start in zip(texts, starts, strict=True) for token in text[start:]]
        lengths, num_slots = list(map(len, texts)), max(map(len, texts))
        ends, first = torch.tensor(lengths, device=device), torch.tensor(starts, device=device)
        counts = ends - first
        width = max(end - start for end, start in zip(lengths, starts, strict=True))
        columns = torch.arange(width, device=device)
        real = (columns < counts[:, None]).flatten().nonzero()[:, 0]
        row, column = real // width, real % width
        positions, after = first[row] + column, counts.cumsum(0)
        # Padding repeats a text's last token.
        padded = ((after - counts)[:, None] + columns.minimum(counts[:, None] - 1)).flatten()
        mask = None
        if any(starts):
            slots = (first[:, None] + columns).clamp(max=num_slots - 1).flatten()
            mask = length_mask(slots, num_slots, self.cache.keys.dtype)
            mask = mask.view(len(texts), 1, width, num_slots)

        def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # Only here do texts need one width: the products, most of the work, see no padding.
            query = query[padded].view(len(keys), width, *query.shape[1:])
            return attend_all(query, keys, values, mask).flatten(0, 1)[real]

        last_mask = length_mask(ends - 1, num_slots, self.cache.keys.dtype)
        reading = Reading(
            cos=self._cos[positions],
            sin=self._sin[positions],
            places=self.cache.places(first_row + row, positions),
            rows=slice(first_row, first_row + len(texts)),
            num_slots=num_slots,
            attend=attend,
            last=after - 1,
            attend_last=partial(attend_one, mask=last_mask),
        )
        return self._logits(torch.tensor(ids, device=device), reading)

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        num_slots, device = int(lengths.max()) + 1, self.cache.keys.device
        tokens, at = (torch.from_numpy(each).to(device) for each in (ids, lengths))
        # Rows of one length, such as those of a group after its prompt, need no mask.
        is_ragged = bool(lengths.min() + 1 < num_slots)
        mask = length_mask(at, num_slots, self.cache.keys.dtype) if is_ragged else None
        reading = Reading(
            cos=self._cos[at],
            sin=self._sin[at],
            places=self.cache.places(torch.arange(len(ids), device=device), at),
            rows=slice(len(ids)),
            num_slots=num_slots,
            attend=partial(attend_one, mask=mask),
        )
        return self._logits(tokens, reading)

    def _logits(self, ids: Tensor, reading: Reading) -> Tensor:
        """Logits of the texts' last tokens, [texts, V]."""
        hidden: Tensor = self._causal.model.embed_tokens(ids)
        cached = self.cache.read(reading.rows, reading.num_slots)
        for i, layer in enumerate(self._layers):
            x = layer.attention_norm(hidden)
            query, key = self._turned(layer, layer.query(x), layer.key(x), reading)
            self.cache.append(i, key, layer.value(x), reading.places)
            attend = reading.attend
            if i == len(self._layers) - 1 and reading.last is not None and reading.attend_last:
                # The other tokens' outputs are never used, and their logits would be the largest
                # tensor.
                attend = reading.attend_last
                hidden, query = hidden[reading.last], query[reading.last]
            attended = attend(query, *cached[i])
            hidden = hidden + layer.attention_output(attended.flatten(-2))
            hidden = hidden + layer.mlp(layer.mlp_norm(hidden))
        return self._head(self._norm(hidden))

    def _turned(
        self, layer: Layer, query: Tensor, key: Tensor, reading: Reading
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys, [tokens, heads, head_size], normed and rotated (arXiv:2104.09864)."""
        # Side by side, in half as many calls: a small model's time goes to calls.
        heads = torch.cat((query, key), dim=-1)
        heads = heads.view(*heads.shape[:-1], -1, self._attention.head_dim)
        if layer.head_weight is not None:
            scale = inverse_rms(heads, self._eps)
            heads = (heads * scale).to(heads.dtype).mul_(layer.head_weight)
        turned = heads * reading.cos
        turned.addcmul_(heads.roll(heads.shape[-1] // 2, dims=-1), reading.sin)
        query, key = turned.split_with_sizes((self._num_queries, self._num_keys), dim=-2)
        return query, key


def causal_lm(model: PreTrainedModel) -> PreTrainedModel:
    """The language model itself, inside the adapters that wrap it."""
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if inner is None:
        raise UnsupportedModel(f"{type(model).__name__} is no model of transformers")
    return inner


def is_known(config: PretrainedConfig) -> bool:
    """True for a model that `Decoder` computes exactly."""
    rope = config.rope_parameters or {} if config.model_type in FAMILIES else {}
    # The other kinds of rotary embedding change with the length of the text, so that cosines cannot
    # be computed in advance.
    return config.model_type in FAMILIES and rope.get("rope_type", "default") in ROPE_TYPES


def max_positions(config: PretrainedConfig) -> int:
    """Tokens of the longest sequence that is computed exactly: inside any sliding window."""
    window: int | None = None if config.model_type == "llama" else config.sliding_window
    positions: int = config.max_position_embeddings
    return positions if window is None else min(positions, window)


def read_layer(layer: GradientCheckpointingLayer) -> Layer:
    """The functions of a layer of the model."""
    attention, config = layer.self_attn, layer.self_attn.config
    head_weight = None
    if "q_norm" in dict(attention.named_children()):
        weights = (attention.q_norm.weight.detach(), attention.k_norm.weight.detach())
        counts = (config.num_attention_heads, config.num_key_value_heads)
        head_weight = torch.cat([w.expand(n, -1) for w, n in zip(weights, counts, strict=True)])
    return Layer(
        attention_norm=norm_of(layer.input_layernorm),
        query=product_of(attention.q_proj),
        key=product_of(attention.k_proj),
        value=product_of(attention.v_proj),
        attention_output=product_of(attention.o_proj),
        mlp_norm=norm_of(layer.post_attention_layernorm),
        mlp=mlp_of(layer.mlp),
        head_weight=head_weight,
    )


def product_of(module: nn.Linear) -> Map:
    """The linear map of tokens, [tokens, D]; adapters stay as they are."""
    # A subclass may compute something else, such as an adapter's sum.
    if type(module) is not nn.Linear:
        return module
    weight, bias = module.weight.detach(), module.bias
    plain = partial(F.linear, weight=weight, bias=bias)
    has_dnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_dnn or weight.dtype != torch.float32 or weight.device.type != "cpu":
        return plain

    def product(x: Tensor) -> Tensor:
        if x.numel() * len(weight) < DNN_PRODUCTS:
            return plain(x)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    return product


def mlp_of(module: LlamaMLP) -> Map:
    """The MLP, or the experts of a mixture, of tokens [tokens, hidden]."""
    if "experts" in dict(module.named_children()):
        # It knows batches of sequences alone, and experts read single tokens.
        return lambda x: module(x[None])[0]
    gate, up, down = map(product_of, (module.gate_proj, module.up_proj, module.down_proj))
    activation: Map = F.silu if module.config.hidden_act == "silu" else module.act_fn
    return lambda x: down(activation(gate(x)).mul_(up(x)))


def norm_of(module: LlamaRMSNorm) -> Map:
    """Root-mean-square norm (Zhang & Sennrich 2019, arXiv:1910.07467), in five calls, not ten."""
    if type(module).__name__ not in RMS_NORMS:
        as_it_is: Map = module
        return as_it_is
    weight: Tensor = module.weight
    eps = torch.tensor([module.variance_epsilon], device=weight.device)

    def norm(x: Tensor) -> Tensor:
        # Once, because products of two types convert one of them as they go, which is slower.
        wide = x.float()
        return weight * (wide * inverse_rms(wide, eps)).to(x.dtype)

    return norm


def inverse_rms(x: Tensor, eps: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, [..., 1], float32."""
    # The norm's kernel squares and adds in one pass over x, without a tensor of squares.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()
