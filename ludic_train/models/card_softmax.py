"""Passes over the logits of an output head on a card, each of which reads them once.

torch's own functions read or write them nine times for log-probs and entropies, and as often again
for their gradient; with a vocabulary of 150,000 that is as much time as the head's products.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

# Logits of a row that a program reads at a time.
BLOCK = 4096
WARPS = 8


def read_logits(
    logits: Tensor, targets: Tensor, is_masked: bool = True, wants_entropy: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs of the targets, entropies, and log of the sum of exponentials, all float32 [N].

    logits: float32 [N, V], contiguous, of which -inf is allowed. targets: int64 [N].
    Whether there are masks and who wants entropies makes no difference.
    """
    stats = logits.new_empty(3, len(logits))
    size = logits.shape[1]
    # Triton starts kernels on the current card, which may be another.
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _read[(len(logits),)](logits, targets, *stats, SIZE=size, BLOCK=BLOCK, num_warps=WARPS)
    return stats[0], stats[1], stats[2]


def logit_gradient(
    logits: Tensor,
    targets: Tensor,
    stats: Sequence[Tensor],
    of_logprob: Tensor | None,
    of_entropy: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, None]:
    """Gradient [N, V] with respect to the logits, in float32 rounded once to `dtype`.

    logits, targets: as of `read_logits`. stats: what it returned.
    of_logprob, of_entropy: gradients [N] with respect to these; None for none.

        of_logprob (onehot(y) - p) - of_entropy p (log p + H)
    """
    _, entropies, logarithms = stats
    gradient = torch.empty_like(logits, dtype=dtype)
    size = logits.shape[1]
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        _slope[(len(logits), triton.cdiv(size, BLOCK))](
            logits,
            targets,
            entropies,
            logarithms,
            entropies if of_logprob is None else of_logprob,
            entropies if of_entropy is None else of_entropy,
            gradient,
            SIZE=size,
            OF_LOGPROB=of_logprob is not None,
            OF_ENTROPY=of_entropy is not None,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
    return gradient, None


@cache
def compiles_on(device: torch.device) -> bool:
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
