"""Layers of a Llama-shaped model as functions, read from the params of this moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ludic_train.engine.cpu_kernels import Kernels, kernels_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer
    from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

Map = Callable[[Tensor], Tensor]
# From hidden states and what is added to them, if anything: the sum, and its norm.
AddedNorm = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]

# Matrices of a model up to this size are joined and copied whenever they are read: that costs less
# than the many small calls it saves.
JOINED_BYTES = 2**22
# On a CPU, those of larger models up to this size are copied for products that read them faster,
# when they have changed. Those of still larger ones are used where they are: a copy takes as much
# memory again.
PACKED_BYTES = 2**30
# Rows that oneDNN's layout is made for.
PACKED_ROWS = 16
RMS_NORMS = (
    "LlamaRMSNorm",
    "MistralRMSNorm",
    "Qwen2RMSNorm",
    "Qwen3RMSNorm",
    "MixtralRMSNorm",
    "Qwen3MoeRMSNorm",
)


@dataclass(frozen=True, slots=True)
class Heads:
    """The shape of the attention; eps: of the norm of each query and key, if there is one."""

    num_queries: int
    num_keys: int
    size: int
    eps: float | None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Heads lie side by side: queries, then keys, then values.

    weight: factors of the norm of queries and keys, [queries + keys, head_size], the scale of the
        attention scores included; swapped: the same with its halves exchanged.
    """

    before_attention: AddedNorm
    queries: Map
    keys_values: Map
    heads: Map
    after_attention: Map
    before_mlp: AddedNorm
    mlp: Map
    weight: Tensor
    swapped: Tensor


@dataclass(frozen=True, slots=True)
class Norm:
    """Root-mean-square norm of a sum, as `AddedNorm`, by the kernels. weight: [width]."""

    kernels: Kernels
    weight: Tensor
    eps: float

    def __call__(self, hidden: Tensor, more: Tensor | None) -> tuple[Tensor, Tensor]:
        """The sum, in the place of `hidden`, and its norm, [rows, width] each."""
        return self.kernels.added_norm(hidden, more, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """A gated MLP whose first two products are one.

    kernels: for its activation; None where it is not SiLU, or computed by torch.
    """

    gate_and_up: Map
    down: Map
    activation: Map
    kernels: Kernels | None

    def __call__(self, x: Tensor) -> Tensor:
        """The MLP of tokens, [tokens, width] in and out."""
        gate, up = self.gate_and_up(x).chunk(2, dim=-1)
        if self.kernels:
            return self.down(self.kernels.gated(gate, up))
        return self.down(self.activation(gate).mul_(up))


@dataclass(frozen=True, slots=True)
class Layout:
    """Treatment of the matrices of a model.

    joined: those with the same input are one copied matrix. packed: copies are in the layout of the
    kernels, or of oneDNN. kernels: None for torch's functions.
    """

    joined: bool = False
    packed: bool = False
    kernels: Kernels | None = None


def heads_of(causal: PreTrainedModel) -> Heads:
    """Shape of the attention of a model; all its layers have the same."""
    config, attention = causal.config, causal.model.layers[0].self_attn
    eps = None
    if config.model_type in ("qwen3", "qwen3_moe"):
        eps = attention.q_norm.variance_epsilon
    return Heads(config.num_attention_heads, config.num_key_value_heads, attention.head_dim, eps)


def layout_of(causal: PreTrainedModel) -> Layout:
    """Treatment of the matrices of the model as it is now."""
    layers, head = causal.model.layers, causal.lm_head
    # Of the type of the cache, which follows this param.
    kernels = kernels_for(causal.model.embed_tokens.weight, layers[0].self_attn.head_dim)
    linears = [m for m in (*layers.modules(), head) if isinstance(m, nn.Linear)]
    # Anything else than the seven products of a plain layer, such as adapters, runs as it is.
    if len(linears) != 7 * len(layers) + 1 or any(type(m) is not nn.Linear for m in linears):
        return Layout(kernels=kernels)
    is_own = kernels is not None and all(kernels.can_multiply(m.weight) for m in linears)
    if not is_own and sum(m.weight.nbytes for m in linears[:-1]) <= JOINED_BYTES:
        return Layout(joined=True, kernels=kernels)
    is_small = sum(m.weight.nbytes for m in linears) <= PACKED_BYTES
    packed = is_small and all(_can_pack(m.weight, kernels) for m in linears)
    return Layout(joined=packed, packed=packed, kernels=kernels)


def _can_pack(weight: Tensor, kernels: Kernels | None) -> bool:
    """True if there are products with a packed copy of the matrix: our own, or oneDNN's."""
    if kernels and kernels.can_multiply(weight):
        return True
    # Of float32, oneDNN reads one packed row slower than a plain one.
    return weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and has_bfloat16()


def has_bfloat16() -> bool:
    """True if the processor has instructions for bfloat16, by which oneDNN computes."""
    has_dnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_dnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def read_layers(causal: PreTrainedModel, heads: Heads, layout: Layout) -> list[Layer]:
    """All layers with the params of this moment; read again after these have changed."""
    return [_read_layer(layer, heads, layout) for layer in causal.model.layers]


def _read_layer(layer: GradientCheckpointingLayer, heads: Heads, layout: Layout) -> Layer:
    """One layer with its params of this moment."""
    attention = layer.self_attn
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    weight = _head_weight(layer, heads)
    # The last layer alone takes heads apart, once a prompt: a packed copy is not worth its memory.
    apart = Layout(joined=layout.joined and not layout.packed)
    return Layer(
        before_attention=norm_of(layer.input_layernorm, layout.kernels),
        queries=_linear(attention.q_proj),
        keys_values=_side_by_side(projections[1:], apart),
        heads=_side_by_side(projections, layout),
        after_attention=_linear_in(attention.o_proj, layout),
        before_mlp=norm_of(layer.post_attention_layernorm, layout.kernels),
        mlp=_joined_mlp(layer, layout) if layout.joined else _mlp(layer),
        weight=weight,
        swapped=weight.roll(heads.size // 2, dims=-1),
    )


def _head_weight(layer: GradientCheckpointingLayer, heads: Heads) -> Tensor:
    """Factors of queries and keys, [queries + keys, head_size], as `Layer.weight`."""
    attention = layer.self_attn
    if heads.eps is None:
        query = key = layer.input_layernorm.weight.new_ones(heads.size)
    else:
        query, key = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
    # In the weight, so that attention needs no multiplication of its own for every token.
    scaled = query * heads.size**-0.5
    return torch.cat((scaled.expand(heads.num_queries, -1), key.expand(heads.num_keys, -1)))


def _side_by_side(linears: Sequence[nn.Linear], layout: Layout) -> Map:
    """Several linear maps of one input, their outputs side by side."""
    if layout.joined:
        return _joined(linears, layout)
    maps = [_linear(linear) for linear in linears]
    return lambda x: torch.cat([linear(x) for linear in maps], dim=-1)


def _joined(linears: Sequence[nn.Linear], layout: Layout) -> Map:
    """The same with their weights as one matrix, which is copied."""
    biases = tuple(linear.bias for linear in linears if linear.bias is not None)
    bias = torch.cat(biases).detach() if biases else None
    weights = tuple(linear.weight.detach() for linear in linears)
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    if not layout.packed:
        return partial(F.linear, weight=weight, bias=bias)
    if layout.kernels and layout.kernels.can_multiply(weight):
        return layout.kernels.matrix(weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)

    def apply(x: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return found

    return apply


def head_of(causal: PreTrainedModel, layout: Layout) -> Map:
    """The output head of a model."""
    head: nn.Linear = causal.lm_head
    return _joined([head], layout) if layout.packed else head


def _linear_in(module: nn.Linear, layout: Layout) -> Map:
    """The linear map in the layout."""
    return _joined([module], layout) if layout.packed else _linear(module)


def _linear(module: nn.Linear) -> Map:
    """The linear map of tokens [tokens, D]; adapters stay as they are."""
    # A subclass may compute something else, such as an adapter's sum.
    if type(module) is not nn.Linear:
        return module
    bias: Tensor | None = module.bias
    if bias is not None:
        return partial(F.linear, weight=module.weight, bias=bias)
    # The product itself: a linear map comes to it by four calls of torch, some of which take a
    # tenth as long as the product of a row and a small matrix.
    return partial(torch.mm, mat2=module.weight.detach().t())


def _mlp(layer: GradientCheckpointingLayer) -> Map:
    """The MLP, or the experts of a mixture, of tokens [..., hidden]."""
    module = layer.mlp
    if "experts" not in dict(module.named_children()):
        as_it_is: Map = module
        return as_it_is

    def apply(x: Tensor) -> Tensor:
        # It knows batches of sequences alone, and experts read single tokens.
        found: Tensor = module(x.reshape(1, -1, x.shape[-1]))
        return found.view(x.shape)

    return apply


def _joined_mlp(layer: GradientCheckpointingLayer, layout: Layout) -> GatedMLP:
    """The MLP with its first two products as one."""
    mlp: LlamaMLP = layer.mlp
    is_silu = mlp.config.hidden_act == "silu"
    return GatedMLP(
        gate_and_up=_joined([mlp.gate_proj, mlp.up_proj], layout),
        down=_linear_in(mlp.down_proj, layout),
        activation=F.silu if is_silu else mlp.act_fn,
        kernels=layout.kernels if is_silu else None,
    )


def norm_of(module: LlamaRMSNorm, kernels: Kernels | None) -> AddedNorm:
    """Root-mean-square norm (Zhang & Sennrich 2019, arXiv:1910.07467) of a sum."""
    if type(module).__name__ not in RMS_NORMS:
        return partial(_with_sum, norm=module)
    if kernels and module.weight.dtype is kernels.dtype:
        return Norm(kernels, kernels.plain(module.weight.detach()), module.variance_epsilon)
    return partial(_with_sum, norm=_norm(module))


def _with_sum(hidden: Tensor, more: Tensor | None, norm: Map) -> tuple[Tensor, Tensor]:
    hidden = hidden if more is None else hidden + more
    return hidden, norm(hidden)


def _norm(module: LlamaRMSNorm) -> Map:
    """The norm in five calls of torch, not ten."""
    weight: Tensor = module.weight
    eps = torch.tensor([module.variance_epsilon], device=weight.device)

    def apply(x: Tensor) -> Tensor:
        # Once, because products of two types convert one of them as they go, which is slower.
        wide = x.float()
        scale = inverse_rms(wide, eps)
        # In the copy where there is one: new memory for a large tensor costs as much as its values.
        scaled = wide * scale if wide is x else wide.mul_(scale)
        return weight * scaled.to(x.dtype)

    return apply


def inverse_rms(x: Tensor, eps: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, [..., 1], float32."""
    # The norm's kernel squares and adds in one pass over x, without a tensor of squares.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()
