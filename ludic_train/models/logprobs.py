"""Log-probs and entropies of action tokens, in memory that does not grow with the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ludic_train.models.exact import EXACT, exact_linear, padded
from ludic_train.models.logit_finish import LogitFinish, logit_finish
from ludic_train.types import TokenLogprobs

# Logits of this many tokens exist at a time: 1024 x 152k float32 is 0.6 GB.
CHUNK_TOKENS = 1024
VALUE_HEAD = "value_head"
Head = Callable[[Tensor], Tensor]
_SHARDED_FORWARD = "sharded_forward"


@dataclass(frozen=True, slots=True)
class SamplingMasks:
    """The tokens that each of N tokens was drawn from.

    sizes: int64 [N], of each mask; 0 for a token that was drawn from the whole vocabulary.
    ids: int64 [sum of sizes], of all masks, in the order of the tokens.
    """

    sizes: Tensor
    ids: Tensor

    def split(self, size: int) -> Iterator[SamplingMasks]:
        """The masks of `size` tokens after `size` tokens."""
        parts = torch.split(self.sizes, size)
        ids = torch.split(self.ids, [int(part.sum()) for part in parts])
        return map(SamplingMasks, parts, ids)


def action_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    row: Tensor,
    column: Tensor,
    temperature: Tensor,
    position_ids: Tensor | None = None,
    masks: SamplingMasks | None = None,
) -> TokenLogprobs:
    """Log softmax(logits / temperature) of the tokens at (row, column), float32 nats [N].

    input_ids: int64 [B, T], right-padded rows. row, column: int64 [N], column >= 1: the logits
    that predict a token stand one position before it. temperature: float32 [N].
    position_ids: int64 [B, T], starting again with each of several items in a row; None for one
    item per row.
    masks: renormalise over the tokens that each of the N was drawn from; None for all tokens.
    Only hidden states of action tokens meet the vocabulary, a chunk at a time, and the backward
    pass computes the chunk's logits again instead of keeping them. Logits are float32, whatever
    the type of the params. With a value head, the values of the states before the tokens too.
    """
    causal_lm = unwrapped(model)
    forward: Callable[..., tuple[Tensor, ...]] = partial(_forward, causal_lm)
    if isinstance(causal_lm, FSDPModule):
        forward = getattr(causal_lm, _SHARDED_FORWARD)
    logprobs, entropy, *values = forward(input_ids, row, column, temperature, position_ids, masks)
    return TokenLogprobs(logprobs=logprobs, entropy=entropy, values=values[0] if values else None)


def gather_for_logprobs(causal_lm: nn.Module) -> None:
    """Make `action_logprobs` of a sharded model gather the params that no block of it holds.

    causal_lm: the model that `fully_shard` was applied to, changed in place.
    FSDP gathers these where the model's own `forward` is called, which computes all logits.
    """
    setattr(causal_lm, _SHARDED_FORWARD, MethodType(_forward_without_views, causal_lm))
    register_fsdp_forward_method(causal_lm, _SHARDED_FORWARD)


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, its adapters in place; or the model itself.

    Its decoder and output head can be called apart, which a peft wrapper does not offer.
    """
    inner: PreTrainedModel = model.get_base_model() if isinstance(model, PeftModel) else model
    return inner


def _forward(
    causal_lm: PreTrainedModel,
    input_ids: Tensor,
    row: Tensor,
    column: Tensor,
    temperature: Tensor,
    position_ids: Tensor | None,
    masks: SamplingMasks | None,
) -> tuple[Tensor, ...]:
    """Log-probs and entropies [N], and values [N] of a model with a value head."""
    # No attention mask: padding is on the right, and a causal token never looks there. With one,
    # transformers would not look for items in the positions either.
    # The decoder alone: the model's `forward` would compute logits of every token.
    inputs, exact = input_ids[:, :-1], causal_lm.config._attn_implementation == EXACT
    hidden = causal_lm.get_decoder()(
        input_ids=padded(inputs, 1) if exact else inputs,
        position_ids=None if position_ids is None else position_ids[:, :-1],
        use_cache=False,
    )[0]
    selected = hidden[row, column - 1]
    head: Head = causal_lm.get_output_embeddings()
    if exact:
        head = partial(exact_linear, head)
    of_chunk = partial(_chunk_logprobs, head, logit_finish(causal_lm.config))
    found = _chunked(of_chunk, selected, input_ids[row, column], temperature, masks)
    value_head = dict(causal_lm.named_children()).get(VALUE_HEAD)
    if value_head is None:
        return found
    # Beside a frozen base of 16 bits, the head is float32, as all that is trained.
    values = value_head(selected.to(value_head.weight.dtype))
    return (*found, values[:, 0].float())


def _forward_without_views(
    causal_lm: PreTrainedModel,
    *inputs: Any,  # noqa: ANN401 - those of `_forward`
) -> tuple[Tensor, ...]:
    # FSDP hangs its backward hooks on what a forward method returns, and warns of views.
    return tuple(tensor.clone() for tensor in _forward(causal_lm, *inputs))


def _chunked(
    of_chunk: Callable[..., tuple[Tensor, Tensor]],
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [N] of the targets [N] after the hidden states [N, D]."""
    if len(targets) <= CHUNK_TOKENS:
        return of_chunk(hidden, targets, temperature, masks)
    streams = (torch.split(each, CHUNK_TOKENS) for each in (hidden, targets, temperature))
    of_chunks = repeat(None) if masks is None else masks.split(CHUNK_TOKENS)
    # Checkpointed, because a chunk's logits kept for the backward pass are what chunks avoid.
    chunks = [
        checkpoint(of_chunk, *chunk, use_reentrant=False)
        for chunk in zip(*streams, of_chunks, strict=False)
    ]
    logprobs, entropies = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _chunk_logprobs(
    head: Head,
    finish: LogitFinish,
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
) -> tuple[Tensor, Tensor]:
    """As `_chunked`, with all logits at once."""
    # The sampler's distribution is of logits / temperature, and so are the log-probs it reports.
    logits = finish(_float32_logits(head, hidden)) / temperature[:, None]
    if masks is not None:
        # In place: another tensor of floats of this size would double the chunk's memory.
        logits.masked_fill_(_outside(masks, logits), -torch.inf)
    found: tuple[Tensor, Tensor] = _LogprobAndEntropy.apply(logits, targets)  # type: ignore[no-untyped-call]
    return found


def _outside(masks: SamplingMasks, logits: Tensor) -> Tensor:
    """True for the tokens that each row was not drawn from, [N, V]."""
    outside = (masks.sizes > 0)[:, None].repeat(1, logits.shape[1])
    row = torch.arange(len(logits), device=logits.device).repeat_interleave(masks.sizes)
    outside[row, masks.ids] = False
    return outside


class _LogprobAndEntropy(torch.autograd.Function):
    """log p_y [N] of the targets y [N], and H = -sum p log p [N], for p = softmax(logits [N, V]).

    For the backward pass it keeps p alone, where autograd would keep three tensors of this size:

        d log p_y / d logits = onehot(y) - p        d H / d logits = -p log p - p H

    Logits of -inf have p = 0 and no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        logits: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        logprobs = logits.log_softmax(-1)
        chosen = logprobs.gather(-1, targets[:, None])[:, 0]
        p = logprobs.exp_()
        entropy = torch.special.entr(p).sum(-1)
        ctx.save_for_backward(p, targets, entropy)
        return chosen, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        *gradients: Tensor | None,
    ) -> tuple[Tensor | None, None]:
        of_logprob, of_entropy = gradients
        p, targets, entropy = ctx.saved_tensors
        gradient = None
        if of_logprob is not None:
            gradient = p * -of_logprob[:, None]
            gradient.scatter_add_(-1, targets[:, None], of_logprob[:, None])
        # Most losses only report the entropy.
        if of_entropy is not None:
            slope = torch.special.entr(p).addcmul_(p, entropy[:, None], value=-1)
            slope.mul_(of_entropy[:, None])
            gradient = slope if gradient is None else gradient.add_(slope)
        return gradient, None


def _float32_logits(head: Head, hidden: Tensor) -> Tensor:
    """Logits [N, V] in float32, whatever the type of the head."""
    if hidden.dtype == torch.float32 or type(head) is not nn.Linear:
        logits: Tensor = head(hidden)
        return logits.float()
    product: Tensor = _Float32Product.apply(hidden, head.weight)  # type: ignore[no-untyped-call]
    return product if head.bias is None else product + head.bias.float()


class _Float32Product(torch.autograd.Function):
    """x w^T of 16-bit matrices, added up and returned in float32.

    Rounding logits to bfloat16 moves log-probs by 1e-2; ScaleRL (arXiv:2510.13786) finds that to
    cost a fifth of the final score.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        ctx.save_for_backward(x, w)
        # The CPU has no such product, and copying the matrices is what it can do.
        if x.is_cuda:
            return torch.mm(x, w.t(), out_dtype=torch.float32)
        return F.linear(x.float(), w.float())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, w = ctx.saved_tensors
        gradient = gradients[0].to(w.dtype)
        for_x, for_w = ctx.needs_input_grad
        return gradient @ w if for_x else None, gradient.t() @ x if for_w else None
