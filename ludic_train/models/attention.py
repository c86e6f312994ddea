"""Attention of updates: its implementation, its kernels, and rows that several ranks share.

Context parallelism: a row of T tokens is cut into 2n chunks for n ranks, and rank r computes chunks
r and 2n - 1 - r, so that all have equal numbers of pairs of a query and a key that it may see. Each
layer gathers the keys and values of the whole row; queries, activations and logits stay in parts.

Not torch's ring attention (torch.distributed.tensor.experimental.context_parallel): in 2.13 it
replaces the CUDA kernels alone, and could not be tested on a CPU. With grouped-query attention, all
keys and values of a layer are few beside its activations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.attention.bias import causal_lower_right
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from ludic_gym.errors import ConfigError
from ludic_train.errors import UnsupportedModel
from ludic_train.models.modules import unwrapped

NAME = "ludic_context"
# Arguments of attentions that this one does not compute.
UNKNOWN = ("sliding_window", "softcap", "s_aux")
KERNELS = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


class Attention(NamedTuple):
    """A kernel of attention, and the type that it computes in.

    kernel: of torch's scaled_dot_product_attention, "flash", "efficient" and "cudnn" hold a part of
        the scores at a time; "math" holds all of them, in memory that grows with the square of the
        length. Others have the name of their implementation in transformers.
    dtype: such as "bfloat16".
    """

    kernel: str
    dtype: str


def set_attention(model: nn.Module, name: str) -> None:
    """Have the model attend by an implementation of transformers, such as "flash_attention_2".

    Raises ConfigError for one that is not installed, or that the architecture does not have.
    """
    inner = unwrapped(model)
    if inner.config._attn_implementation == name:
        return
    try:
        inner.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "attention='sdpa' needs no further package"
        raise ConfigError(f"attention={name!r}: {reason}; {remedy}") from error


def attention_for(name: str, device: str, dtype: str) -> str | None:
    """The implementation that suits a device and a precision; None leaves the model's own.

    "auto" is flash-attn where it is installed, for 16 bits on a card: it reads items that share a
    row without a mask.
    """
    if name != "auto":
        return name
    if device == "cpu" or dtype != "bf16":
        return None
    if is_flash_attn_3_available():
        return "flash_attention_3"
    return "flash_attention_2" if is_flash_attn_2_available() else None


class AttentionRecorder(TorchFunctionMode):
    """A context that adds the kernels of the forward passes in it to `found`.

    Those of compiled functions are not seen. Kernels outside of torch's own function are named at
    the end, by the model's implementation.
    """

    def __init__(self, found: set[Attention], model: nn.Module | None = None) -> None:
        super().__init__()
        self.found, self._model = found, model
        self._dtype = ""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._model is not None and self._dtype and not self.found:
            implementation = unwrapped(self._model).config._attn_implementation
            self.found.add(Attention(str(implementation), self._dtype))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        """Run the function, and note the kernel if it is an attention."""
        kwargs = kwargs or {}
        # torch.compile traces this method too, and cannot trace the choice.
        if func is F.scaled_dot_product_attention and not torch.compiler.is_compiling():
            # The very choice that the function makes from these arguments.
            number = torch._fused_sdp_choice(*args, **kwargs)
            query = args[0] if args else kwargs["query"]
            kernel = KERNELS.get(SDPBackend(number), "other")
            self.found.add(Attention(kernel, str(query.dtype).removeprefix("torch.")))
        if func is F.embedding and len(args) > 1:
            # Of the table, in which all that follows is computed.
            self._dtype = str(args[1].dtype).removeprefix("torch.")
        return func(*args, **kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class ContextGroup:
    """Ranks that share rows: their number, the index of this one, and their process group."""

    size: int
    index: int
    group: dist.ProcessGroup

    @property
    def chunks(self) -> tuple[int, int]:
        """Numbers of the chunks that this rank computes."""
        return self.index, 2 * self.size - 1 - self.index

    def width(self, tokens: int) -> int:
        """Tokens of a chunk of a row of so many, which is padded to 2n such chunks."""
        return -(-tokens // (2 * self.size))

    def own_tokens(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The ids [B, 2w] that this rank computes of [B, T], and their positions [B, 2w]."""
        width = self.width(input_ids.shape[1])
        starts = torch.tensor(self.chunks, device=input_ids.device)[:, None] * width
        positions = (starts + torch.arange(width, device=input_ids.device)).flatten()
        # At the end, where the causal mask hides it from all tokens of the row.
        padded = F.pad(input_ids, (0, 2 * self.size * width - input_ids.shape[1]))
        return padded[:, positions], positions.expand(len(input_ids), -1)

    def placed(self, position: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """True for the positions [N] in a row of so many tokens that are here; where, for these."""
        width = self.width(tokens)
        chunk, first, second = position // width, *self.chunks
        is_local = (chunk == first) | (chunk == second)
        # Here the second chunk follows the first one directly, so it begins at `width`.
        start = torch.where(chunk == first, first * width, (second - 1) * width)
        return is_local, (position - start)[is_local]

    def completed(self, part: Tensor, is_local: Tensor) -> Tensor:
        """The whole [N, ...] on each rank, of parts of it [n, ...] where `is_local` [N] is True.

        Each rank must go on with the same computation: gradients of the whole are not added up.
        """
        whole = part.new_zeros(len(is_local), *part.shape[1:])
        whole = whole.masked_scatter(
            is_local.view(-1, *[1] * (part.ndim - 1)).expand_as(whole), part
        )
        added: Tensor = _Added.apply(whole, self.group)  # type: ignore[no-untyped-call]
        return added


# By the name of the attention in a model's config; attention layers know nothing else of the model.
CONTEXTS: dict[str | None, ContextGroup] = {}


def share_rows(model: nn.Module, ranks: int) -> None:
    """Have each `ranks` neighbouring ranks compute their rows together; all ranks call this.

    model: changed in place, once; a second trainer of the same model finds it so. Rows then hold
        one item each, and no mask but the causal one.
    Raises ConfigError where the ranks cannot be divided so, and UnsupportedModel for a model whose
    attention is not that of transformers' interface.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    if world % ranks:
        raise ConfigError(
            f"context_parallel={ranks} and {world} ranks: so many ranks must divide them; start "
            f"them with torchrun --nproc-per-node {ranks}"
        )
    inner = next(m for m in model.modules() if isinstance(m, PreTrainedModel))
    name = f"{NAME}_{ranks}"
    if inner.config._attn_implementation == name:
        return
    if inner.config._attn_implementation not in ("sdpa", "eager"):
        raise UnsupportedModel(
            f"context_parallel={ranks} for attention {inner.config._attn_implementation!r}: load "
            "the model with attn_implementation='sdpa'"
        )
    for first in range(0, world, ranks):
        # Every rank must take part in making each group.
        group = dist.new_group(list(range(first, first + ranks)))
        if first <= dist.get_rank() < first + ranks:
            context = ContextGroup(ranks, dist.get_rank() - first, group)
    CONTEXTS[name] = context
    AttentionInterface.register(name, partial(_attention, context))
    inner.set_attn_implementation(name)


def _attention(
    context: ContextGroup,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    shared_rows: bool = False,
    scaling: float | None = None,
    **others: Any,  # noqa: ANN401 - those of the architecture
) -> tuple[Tensor, Tensor | None]:
    """Causal attention of this rank's queries [B, H, 2w, D] to the keys of all ranks.

    shared_rows: False for rows that this rank has whole.
    """
    if unknown := [name for name in UNKNOWN if others.get(name) is not None]:
        raise UnsupportedModel(
            f"context_parallel={context.size} for a model with {', '.join(unknown)}: only "
            "attention to all earlier tokens can be shared among ranks; take context_parallel=1"
        )
    if not shared_rows:
        inputs = (module, query, key, value, attention_mask)
        alone: tuple[Tensor, None] = sdpa_attention_forward(*inputs, scaling=scaling, **others)
        return alone
    width = query.shape[2] // 2
    parts = _Gathered.apply(torch.stack([key, value]), context.group, context.size)  # type: ignore[no-untyped-call]
    first, second = torch.split(parts, width, dim=-2)
    keys, values = torch.cat([*first, *second.flip(0)], dim=-2)
    attended = []
    for part, chunk in zip(torch.split(query, width, dim=2), context.chunks, strict=True):
        end = (chunk + 1) * width
        seen = F.scaled_dot_product_attention(
            part,
            keys[:, :, :end],
            values[:, :, :end],
            attn_mask=causal_lower_right(width, end),
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        attended.append(seen)
    return torch.cat(attended, 2).transpose(1, 2).contiguous(), None


class _Gathered(torch.autograd.Function):
    """The tensors of all ranks, [n, ...]; gradients of a rank's tensor are added up over ranks."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup, size: int) -> Tensor:  # noqa: ANN401
        ctx.group = group
        # Gloo cuts the result along its first dimension, which has to be the tensors' own.
        gathered = part.new_empty(size * len(part), *part.shape[1:])
        dist.all_gather_into_tensor(gathered, part.contiguous(), group=group)
        return gathered.view(size, *part.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        gradient = torch.empty_like(gradients[0][0], memory_format=torch.contiguous_format)
        dist.reduce_scatter_tensor(
            gradient, gradients[0].flatten(0, 1).contiguous(), group=ctx.group
        )
        return gradient, None, None


class _Added(torch.autograd.Function):
    """The sum over ranks; the gradient is that of one rank, because all compute the same of it."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:  # noqa: ANN401
        added = part.clone()
        dist.all_reduce(added, group=group)
        return added

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return gradients[0], None
