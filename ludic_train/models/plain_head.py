"""Log-probs of a head that is one matrix, in one pass over chunks of tokens, and their gradient."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ludic_train.models.heads import CHUNK_TOKENS, SamplingMasks, outside

# Types of params that the product is written for.
PLAIN_TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Logits that each pass over them works on: on a CPU, 1 MB, which stay in its cache; on a card, as
# many as keep it busy, because the pass needs as much memory again.
CPU_PART, CARD_PART = 2**18, 2**23


def is_plain(head: nn.Module, hidden: Tensor) -> bool:
    """True for a head that is one matrix, of the type of the hidden states."""
    if type(head) is not nn.Linear or "bias" in dict(head.named_parameters(recurse=False)):
        return False
    return head.weight.dtype == hidden.dtype and hidden.dtype in PLAIN_TYPES


def plain_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
    wants_entropy: bool,
    is_kept: bool,
) -> tuple[Tensor, Tensor]:
    """Log-probs of the targets [N] and entropies, [N] or [0]; differentiable.

    hidden: [N, D]. weight: of the head, [V, D]. temperature: float32 [N]. masks: the tokens that
    each of the N was drawn from. wants_entropy: False may leave out the entropies. is_kept: False
    if the backward pass computes the logits again.
    """
    inputs = hidden, weight, targets, temperature, masks, wants_entropy, is_kept
    of_head = _CardHead if hidden.is_cuda and _has_kernels(hidden.device) else _PlainHead
    logprobs, entropy = of_head.apply(*inputs)  # type: ignore[no-untyped-call]
    return logprobs, entropy


def _has_kernels(device: torch.device) -> bool:
    """True if kernels of our own run on this card. Triton comes with torch's builds for cards."""
    try:
        from ludic_train.models.card_head import runs_on
    except ImportError:
        return False
    return runs_on(device)


class _PlainHead(torch.autograd.Function):
    """log p_y [N] of the targets y [N], and H = -sum p log p [N], for p = softmax(h W^T / T).

    One pass over chunks of tokens instead of an operation of autograd after the other. The backward
    pass reads p - onehot(y) [N, V], which is kept, or made again where that takes too much memory:

        d log p_y / d logits = onehot(y) - p        d H / d logits = -p log p - p H

    The gradient of W is added up in float32 and rounded once, whatever the type of W.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: Tensor,
        masks: SamplingMasks | None,
        wants_entropy: bool,
        is_kept: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        kept: list[Tensor] = []
        found: list[tuple[Tensor, Tensor]] = []
        for h, y, t, mask in _chunks(hidden, targets, temperature, masks):
            logits = _logits(h, weight, t, mask)
            found.append(_softmax_less_target_(logits, y, masks is not None, wants_entropy))
            if is_kept and any(ctx.needs_input_grad[:2]):
                kept.append(logits)
        logprobs, entropy = map(torch.cat, zip(*found, strict=True))
        ctx.masks = masks
        ctx.save_for_backward(hidden, weight, targets, temperature, logprobs, entropy, *kept)
        if not wants_entropy:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_logprob: Tensor | None,
        of_entropy: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, temperature, logprobs, entropy, *kept = ctx.saved_tensors
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        of_hidden: list[Tensor] = []
        of_weight: Tensor | None = None
        at = 0
        for k, (h, y, t, mask) in enumerate(_chunks(hidden, targets, temperature, ctx.masks)):
            own = slice(at, at := at + len(h))
            less = kept[k] if kept else _logits(h, weight, t, mask)
            if not kept:
                _softmax_less_target_(less, y, mask is not None, False)
            scale = -of_logprob[own] / t if of_logprob is not None else torch.zeros_like(t)
            if of_entropy is not None:
                slope = _entropy_slope(less, y, logprobs[own], entropy[own])
                less = less * scale[:, None] + slope * (of_entropy[own] / t)[:, None]
                scale = torch.ones_like(t)
            less, h, scale = _scaled(less, h, scale, weight.dtype)
            if for_hidden:
                of_hidden.append((less @ weight).mul_(scale[:, None]))
            if for_weight:
                of_weight = _added(of_weight, less.t(), h * scale[:, None])
        return (
            torch.cat(of_hidden) if for_hidden else None,
            None if of_weight is None else of_weight.to(weight.dtype),
            *(None,) * 5,
        )


class _CardHead(torch.autograd.Function):
    """As `_PlainHead`, by kernels that read the logits once; what is kept is logits."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: Tensor,
        masks: SamplingMasks | None,
        wants_entropy: bool,
        is_kept: bool,
    ) -> tuple[Tensor, Tensor]:
        from ludic_train.models.card_head import read_logits

        ctx.set_materialize_grads(False)
        kept: list[Tensor] = []
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for h, y, t, mask in _chunks(hidden, targets, temperature, masks):
            logits = _logits(h, weight, t, mask)
            found.append(read_logits(logits, y))
            if is_kept and any(ctx.needs_input_grad[:2]):
                kept.append(logits)
        logprobs, entropy, logarithms = map(torch.cat, zip(*found, strict=True))
        ctx.masks = masks
        ctx.save_for_backward(hidden, weight, targets, temperature, entropy, logarithms, *kept)
        if not wants_entropy:
            entropy = entropy.new_empty(0)
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        of_logprob: Tensor | None,
        of_entropy: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        from ludic_train.models.card_head import logit_gradient

        hidden, weight, targets, temperature, entropy, logarithms, *kept = ctx.saved_tensors
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        of_hidden: list[Tensor] = []
        of_weight: Tensor | None = None
        scales = [None if g is None else g / temperature for g in (of_logprob, of_entropy)]
        at = 0
        for k, (h, y, t, mask) in enumerate(_chunks(hidden, targets, temperature, ctx.masks)):
            own = slice(at, at := at + len(h))
            logits = kept[k] if kept else _logits(h, weight, t, mask)
            g, g_entropy = (None if scale is None else scale[own] for scale in scales)
            slope = logit_gradient(
                logits, y, entropy[own], logarithms[own], g, g_entropy, weight.dtype
            )
            if for_hidden:
                of_hidden.append(slope @ weight)
            if for_weight:
                of_weight = _added(of_weight, slope.t(), h)
        return (
            torch.cat(of_hidden) if for_hidden else None,
            None if of_weight is None else of_weight.to(weight.dtype),
            *(None,) * 5,
        )


def _chunks(
    hidden: Tensor, targets: Tensor, temperature: Tensor, masks: SamplingMasks | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, SamplingMasks | None]]:
    """Hidden states, targets, temperatures and masks of CHUNK_TOKENS tokens after the others."""
    streams = (torch.split(each, CHUNK_TOKENS) for each in (hidden, targets, temperature))
    of_masks = repeat(None) if masks is None else masks.split(CHUNK_TOKENS)
    return zip(*streams, of_masks, strict=False)


def _logits(
    hidden: Tensor, weight: Tensor, temperature: Tensor, mask: SamplingMasks | None
) -> Tensor:
    """Logits [N, V] in float32, divided by the temperature [N], -inf outside of the masks.

    Rounding them to bfloat16 moves log-probs by 1e-2; ScaleRL (arXiv:2510.13786) finds that to cost
    a fifth of the final score.
    """
    if weight.dtype == torch.float32:
        logits = hidden @ weight.t()
    elif hidden.is_cuda:
        logits = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    else:
        # The CPU has no such product, and copying the matrices is what it can do.
        logits = F.linear(hidden.float(), weight.float())
    # A comparison on a card would wait for all that it has to do.
    if hidden.is_cuda or hidden.is_meta or bool((temperature != 1).any()):
        logits.div_(temperature[:, None])
    return logits if mask is None else logits.masked_fill_(outside(mask, logits), -torch.inf)


def _softmax_less_target_(
    logits: Tensor, targets: Tensor, is_masked: bool, wants_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Log-probs [N] of the targets and entropies, [N] or [0]; logits become p - onehot(target)."""
    rows = max((CPU_PART if logits.is_cpu else CARD_PART) // logits.shape[1], 1)
    chosen, entropies = [], []
    for z, y in zip(torch.split(logits, rows), torch.split(targets, rows), strict=True):
        logprobs = z.log_softmax(-1)
        chosen.append(logprobs.gather(-1, y[:, None])[:, 0])
        torch.exp(logprobs, out=z)
        if wants_entropy:
            # Finite, because 0 x -inf is no number.
            if is_masked:
                logprobs.clamp_(min=torch.finfo(z.dtype).min)
            # Subtracted from 0, because the negative of 0 prints as -0.
            entropies.append(0.0 - logprobs.mul_(z).sum(-1))
    # Now and not in the backward pass, whose products then read what is kept as it is.
    logits.scatter_add_(-1, targets[:, None], logits.new_full((len(targets), 1), -1.0))
    return torch.cat(chosen), torch.cat(entropies) if entropies else logits.new_empty(0)


def _entropy_slope(less: Tensor, targets: Tensor, logprobs: Tensor, entropy: Tensor) -> Tensor:
    """Gradient of H with respect to the logits, [N, V], of p - onehot(target)."""
    # -p (log p + H). At the target p is made anew: 1 + (p - 1) has lost the digits of a small p.
    p = less.scatter(-1, targets[:, None], logprobs.exp()[:, None])
    slope: Tensor = torch.special.entr(p)
    return slope.addcmul_(p, entropy[:, None], value=-1)


def _scaled(
    less: Tensor, hidden: Tensor, scale: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Factors of the gradients' products; float32 rows are scaled where they are short, in D."""
    if dtype == torch.float32:
        return less, hidden, scale
    # Rounded once, scale included.
    rounded = torch.mul(less, scale[:, None], out=torch.empty_like(less, dtype=dtype))
    return rounded, hidden, torch.ones_like(scale, dtype=dtype)


def _added(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """`total` + left right, in float32."""
    if left.dtype == torch.float32:
        return left @ right if total is None else total.addmm_(left, right)
    # A card multiplies 16 bits into float32; a CPU would round each product's sum to 16 bits.
    if not left.is_cuda:
        left, right = left.float(), right.float()
        return left @ right if total is None else total.addmm_(left, right)
    if total is None:
        return torch.mm(left, right, out_dtype=torch.float32)
    # In place: with a large vocabulary, a copy of the sum takes half as long as the product.
    return torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
