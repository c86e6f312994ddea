"""Log-probs and entropies from the logits of any head, by operations that torch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ludic_gym.errors import ConfigError

# Logits of this many tokens exist at a time: 1024 x 152k float32 is 0.6 GB.
CHUNK_TOKENS = 1024
# exp of the negative of it is finite in float32.
LEAST_REST = -80.0
Head = Callable[[Tensor], Tensor]
LogitFinish = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class SamplingMasks:
    """The tokens that each of N tokens was drawn from.

    sizes: int64 [N], of each mask; 0 for a token that was drawn from the whole vocabulary.
    ids: int64 [sum of sizes], of all masks, in the order of the tokens.
    """

    sizes: Tensor
    ids: Tensor

    def chosen(self, tokens: Tensor) -> SamplingMasks:
        """The masks of the tokens that are True in `tokens`, bool [N]."""
        return SamplingMasks(self.sizes[tokens], self.ids[tokens.repeat_interleave(self.sizes)])

    def split(self, size: int) -> Iterator[SamplingMasks]:
        """The masks of `size` tokens after `size` tokens."""
        parts = torch.split(self.sizes, size)
        ids = torch.split(self.ids, [int(part.sum()) for part in parts])
        return map(SamplingMasks, parts, ids)


def chunked(
    of_chunk: Callable[..., tuple[Tensor, ...]],
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
    top: Tensor | int | None = None,
    *,
    is_kept: bool,
) -> tuple[Tensor, ...]:
    """Log-probs and entropies [N] of the targets [N] after the hidden states [N, D].

    With `top`, log-probs [N, k + 1] of these tokens too, and their ids [N, k] if it is a number.
    is_kept: False if the backward pass computes the logits again.
    """
    if len(targets) <= CHUNK_TOKENS:
        return of_chunk(hidden, targets, temperature, masks, top)
    streams = (torch.split(each, CHUNK_TOKENS) for each in (hidden, targets, temperature))
    of_chunks = repeat(None) if masks is None else masks.split(CHUNK_TOKENS)
    tops = torch.split(top, CHUNK_TOKENS) if isinstance(top, Tensor) else repeat(top)
    run = of_chunk if is_kept else partial(checkpoint, of_chunk, use_reentrant=False)
    # Not strict, because `repeat` never ends.
    chunks = [run(*chunk) for chunk in zip(*streams, of_chunks, tops, strict=False)]
    return tuple(map(torch.cat, zip(*chunks, strict=True)))


def chunk_logprobs(
    head: Head,
    finish: LogitFinish,
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
    top: Tensor | int | None = None,
) -> tuple[Tensor, ...]:
    """As `chunked`, with all logits at once."""
    # The sampler's distribution is of logits / temperature, and so are the log-probs it reports.
    logits = finish(_float32_logits(head, hidden)) / temperature[:, None]
    if masks is not None:
        # In place: another tensor of floats of this size would double the chunk's memory.
        logits.masked_fill_(outside(masks, logits), -torch.inf)
    ids = _most_likely(logits, top) if isinstance(top, int) else top
    found: tuple[Tensor, ...] = _LogprobAndEntropy.apply(logits, targets, ids)  # type: ignore[no-untyped-call]
    return (*found, ids) if isinstance(top, int) and ids is not None else found


def _most_likely(logits: Tensor, k: int) -> Tensor:
    """Ids [N, k] of the highest logits [N, V]. Raises ConfigError for a k above V."""
    if k > logits.shape[1]:
        raise ConfigError(
            f"the {k} most likely tokens of a vocabulary of {logits.shape[1]}: choose a smaller k"
        )
    return logits.topk(k).indices


def outside(masks: SamplingMasks, logits: Tensor) -> Tensor:
    """True for the tokens that each row was not drawn from, [N, V]."""
    outside = (masks.sizes > 0)[:, None].repeat(1, logits.shape[1])
    row = torch.arange(len(logits), device=logits.device).repeat_interleave(masks.sizes)
    outside[row, masks.ids] = False
    return outside


class _LogprobAndEntropy(torch.autograd.Function):
    """log p_y [N] of the targets y [N], and H = -sum p log p [N], for p = softmax(logits [N, V]).

    With ids `top` [N, k], the log-probs [N, k + 1] of these and of all others together, log p_R.
    For the backward pass it keeps p alone, where autograd would keep three tensors of this size:

        d log p_y / d logits = onehot(y) - p        d H / d logits = -p log p - p H
        d log p_R / d logits = p 1_R / p_R - p

    Logits of -inf have p = 0 and no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        logits: Tensor,
        targets: Tensor,
        top: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        # An output that no loss reads then gives None, and `backward` leaves out its part.
        ctx.set_materialize_grads(False)
        logprobs = logits.log_softmax(-1)
        chosen = logprobs.gather(-1, targets[:, None])[:, 0]
        found = None if top is None else _with_rest(logprobs, top)
        p = logprobs.exp()
        # `entr` would take the logarithm again. Finite, because 0 x -inf is no number; and
        # subtracted from 0, because the negative of 0 prints as -0.
        entropy = 0.0 - logprobs.clamp_(min=torch.finfo(p.dtype).min).mul_(p).sum(-1)
        ctx.save_for_backward(p, targets, entropy, top, found)
        return (chosen, entropy) if found is None else (chosen, entropy, found)

    @staticmethod
    # p is kept as a number: a second derivative would silently leave out how it depends on the
    # logits.
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        *gradients: Tensor | None,
    ) -> tuple[Tensor | None, None, None]:
        of_logprob, of_entropy, *of_top = gradients
        p, targets, entropy, top, found = ctx.saved_tensors
        gradient = None
        if of_logprob is not None:
            gradient = p * -of_logprob[:, None]
            gradient.scatter_add_(-1, targets[:, None], of_logprob[:, None])
        if of_top and of_top[0] is not None:
            slope = _gradient_of_top(p, top, found, of_top[0])
            gradient = slope if gradient is None else gradient.add_(slope)
        # Most losses only report the entropy.
        if of_entropy is not None:
            slope = torch.special.entr(p).addcmul_(p, entropy[:, None], value=-1)
            slope.mul_(of_entropy[:, None])
            gradient = slope if gradient is None else gradient.add_(slope)
        return gradient, None, None


def _with_rest(logprobs: Tensor, ids: Tensor) -> Tensor:
    """Log-probs [N, k + 1] of the ids [N, k] and of all others together, of log-probs [N, V]."""
    own = logprobs.gather(-1, ids)
    # In place and back again: a copy would be one more tensor of this size. Not 1 - sum(own), which
    # has no digits left where the ids have nearly all of the probability.
    logprobs.scatter_(-1, ids, -torch.inf)
    rest = logprobs.logsumexp(-1, keepdim=True)
    logprobs.scatter_(-1, ids, own)
    return torch.cat([own, rest], -1)


def _gradient_of_top(p: Tensor, ids: Tensor, found: Tensor, upstream: Tensor) -> Tensor:
    """Gradient [N, V] of the logits, where `upstream` [N, k + 1] is that of `_with_rest`."""
    own, of_rest, total = upstream[:, :-1], upstream[:, -1:], upstream.sum(-1, keepdim=True)
    # Below this bound p is hardly representable; without others, p_R = 0 and its gradient is 0.
    gradient = p * (of_rest * torch.exp(-found[:, -1:].clamp(min=LEAST_REST)) - total)
    return gradient.scatter_(-1, ids, own - p.gather(-1, ids) * total)


def _float32_logits(head: Head, hidden: Tensor) -> Tensor:
    """Logits [N, V] in float32, whatever the type of the head."""
    # A subclass or a wrapper may add to the product of the matrices, as adapters do.
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
        # torch has no product of matrices of different types.
        gradient = gradients[0].to(w.dtype)
        for_x, for_w = ctx.needs_input_grad
        return gradient @ w if for_x else None, gradient.t() @ x if for_w else None
