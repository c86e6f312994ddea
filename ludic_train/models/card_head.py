"""Passes over the logits of an output head on a card, each of which reads them once.

torch's own functions read or write them nine times for log-probs and entropies, and as often again
for their gradient; with a vocabulary of 150,000 that is as much time as the head's products.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ludic_train.models.head import SamplingMasks, added_in_float32, float32_logits, token_chunks

# Logits of a row that a program reads at a time.
BLOCK = 4096
WARPS = 8


def read_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of the targets, entropies, and log of the sum of exponentials, all float32 [N].

    logits: float32 [N, V], contiguous, of which -inf is allowed. targets: int64 [N].
    """
    found = logits.new_empty(3, len(logits))
    size = logits.shape[1]
    # Triton starts kernels on the current card, which may be another.
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _read[(len(logits),)](logits, targets, *found, SIZE=size, BLOCK=BLOCK, num_warps=WARPS)
    return found[0], found[1], found[2]


def logit_gradient(
    logits: Tensor,
    targets: Tensor,
    entropies: Tensor,
    logarithms: Tensor,
    of_logprob: Tensor | None,
    of_entropy: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Gradient [N, V] with respect to the logits, in float32 rounded once to `dtype`.

    logits, targets: as of `read_logits`. entropies, logarithms: that it gave.
    of_logprob, of_entropy: gradients [N] with respect to these; None for none.

        of_logprob (onehot(y) - p) - of_entropy p (log p + H)
    """
    made = torch.empty_like(logits, dtype=dtype)
    size = logits.shape[1]
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _slope[(len(logits), triton.cdiv(size, BLOCK))](
            logits,
            targets,
            entropies,
            logarithms,
            entropies if of_logprob is None else of_logprob,
            entropies if of_entropy is None else of_entropy,
            made,
            SIZE=size,
            OF_LOGPROB=of_logprob is not None,
            OF_ENTROPY=of_entropy is not None,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
    return made


class _CardHead(torch.autograd.Function):
    """As `logprobs._PlainHead`, by kernels that read the logits once; what is kept is logits."""

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
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for h, y, t, mask in token_chunks(hidden, targets, temperature, masks):
            logits = float32_logits(h, weight, t, mask)
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
        hidden, weight, targets, temperature, entropy, logarithms, *kept = ctx.saved_tensors
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        of_hidden: list[Tensor] = []
        of_weight: Tensor | None = None
        scales = [None if g is None else g / temperature for g in (of_logprob, of_entropy)]
        at = 0
        for k, (h, y, t, mask) in enumerate(token_chunks(hidden, targets, temperature, ctx.masks)):
            own = slice(at, at := at + len(h))
            logits = kept[k] if kept else float32_logits(h, weight, t, mask)
            g, g_entropy = (None if scale is None else scale[own] for scale in scales)
            slope = logit_gradient(
                logits, y, entropy[own], logarithms[own], g, g_entropy, weight.dtype
            )
            if for_hidden:
                of_hidden.append(slope @ weight)
            if for_weight:
                of_weight = added_in_float32(of_weight, slope.t(), h)
        return (
            torch.cat(of_hidden) if for_hidden else None,
            None if of_weight is None else of_weight.to(weight.dtype),
            *(None,) * 5,
        )


@cache
def card_head(device: torch.device) -> type[torch.autograd.Function] | None:
    """The pass over a plain head on a card; None, with a warning, where nothing can be compiled."""
    return _CardHead if _runs_on(device) else None


def _runs_on(device: torch.device) -> bool:
    """True if these kernels can be compiled for a card; otherwise a warning says why."""
    try:
        read_logits(torch.zeros(1, 2, device=device), torch.zeros(1, device=device).long())
    # Compilers, drivers and their absence raise anything.
    except Exception as error:
        logging.getLogger(__name__).warning(
            "log-probs on %s take torch's functions, which are slower: Triton compiles no kernel "
            "here (%s)",
            device,
            str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__,
        )
        return False
    return True


# Without types of the pointers: Triton compiles what stands there.
@triton.jit  # type: ignore[untyped-decorator]
def _read(  # type: ignore[no-untyped-def]
    logits,  # noqa: ANN001
    targets,  # noqa: ANN001
    logprobs,  # noqa: ANN001
    entropies,  # noqa: ANN001
    logarithms,  # noqa: ANN001
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    start_of_row = logits + row.to(tl.int64) * SIZE
    columns = tl.arange(0, BLOCK)
    # Of the logits that each lane has read: the largest, the sum of exp(z - largest), and that of
    # exp(z - largest) (z - largest), by which small entropies lose no digits.
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    weighted = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, SIZE, BLOCK):
        at = start + columns
        z = tl.load(start_of_row + at, mask=at < SIZE, other=float("-inf"))
        higher = tl.maximum(top, z)
        # Of lanes without a finite logit all differences are 0, not inf - inf.
        lift = tl.where(top == float("-inf"), 0.0, top - higher)
        below = tl.where(z == float("-inf"), 0.0, z - higher)
        kept = tl.exp(lift)
        new = tl.where(z == float("-inf"), 0.0, tl.exp(below))
        weighted = kept * (weighted + total * lift) + new * below
        total = kept * total + new
        top = higher
    highest = tl.max(top, 0)
    lift = tl.where(top == float("-inf"), 0.0, top - highest)
    kept = tl.exp(lift)
    whole = tl.sum(kept * total, 0)
    logarithm = highest + tl.log(whole)
    chosen = tl.load(start_of_row + tl.load(targets + row))
    tl.store(logprobs + row, chosen - logarithm)
    tl.store(entropies + row, tl.log(whole) - tl.sum(kept * (weighted + total * lift), 0) / whole)
    tl.store(logarithms + row, logarithm)


@triton.jit  # type: ignore[untyped-decorator]
def _slope(  # type: ignore[no-untyped-def]
    logits,  # noqa: ANN001
    targets,  # noqa: ANN001
    entropies,  # noqa: ANN001
    logarithms,  # noqa: ANN001
    of_logprob,  # noqa: ANN001
    of_entropy,  # noqa: ANN001
    made,  # noqa: ANN001
    SIZE: tl.constexpr,
    OF_LOGPROB: tl.constexpr,
    OF_ENTROPY: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    start_of_row = row.to(tl.int64) * SIZE
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < SIZE
    z = tl.load(logits + start_of_row + columns, mask=inside, other=float("-inf"))
    logprob = z - tl.load(logarithms + row)
    p = tl.exp(logprob)
    slope = tl.zeros((BLOCK,), tl.float32)
    if OF_LOGPROB:
        is_target = columns == tl.load(targets + row)
        slope += tl.load(of_logprob + row) * (tl.where(is_target, 1.0, 0.0) - p)
    if OF_ENTROPY:
        surprise = tl.where(p > 0.0, logprob + tl.load(entropies + row), 0.0)
        slope -= tl.load(of_entropy + row) * p * surprise
    tl.store(made + start_of_row + columns, slope.to(made.dtype.element_ty), mask=inside)
