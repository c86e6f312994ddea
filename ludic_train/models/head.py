"""Log-probs and entropies of action tokens, in memory that does not grow with the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_masks_for_generate

from ludic_gym.errors import ConfigError
from ludic_train.models.attention import CONTEXTS
from ludic_train.models.exact import EXACT, exact_linear, padded
from ludic_train.models.mixers import items_apart
from ludic_train.models.modules import VALUE_HEAD, decoder_of, unwrapped, vocabulary_of
from ludic_train.types import TokenLogprobs

# Logits of this many tokens exist at a time: 1024 x 152k float32 is 0.6 GB.
CHUNK_TOKENS = 1024
# exp of the negative of it is finite in float32.
LEAST_REST = -80.0
Head = Callable[[Tensor], Tensor]
LogitFinish = Callable[[Tensor], Tensor]
# So many probabilities, 0.5 GB, are kept for the backward pass; more are computed again by it.
KEPT_PROBABILITIES = 2**27
# Logits that each pass over them works on: on a CPU, 1 MB, which stay in its cache; on a card, as
# many as keep it busy, because the pass needs as much memory again.
CPU_PART, CARD_PART = 2**18, 2**23
# Model types that make their masks without a look at positions (transformers 5.19).
BLIND = ("gpt_oss", "afmoe", "granitemoehybrid")
# Names in configs: Cohere, Falcon H1 and others multiply, Granite divides, and Gemma and others
# bend large logits by cap * tanh(logits / cap), arXiv:2408.00118.
FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
DIVISORS = ("logits_scaling",)
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
# Types of params that the product of a plain head is written for.
PLAIN_TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Of a sharded model, the name of `forward_of_head` with the params that no block holds gathered.
SHARDED_FORWARD = "sharded_forward"


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


def action_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    row: Tensor,
    column: Tensor,
    temperature: Tensor,
    position_ids: Tensor | None = None,
    masks: SamplingMasks | None = None,
    top: Tensor | int | None = None,
    attention_mask: Tensor | None = None,
    *,
    entropy: bool = True,
) -> TokenLogprobs:
    """Log softmax(logits / temperature) of the tokens at (row, column), float32 nats [N].

    input_ids: int64 [B, T], right-padded rows. row, column: int64 [N], column >= 1: the logits
    that predict a token stand one position before it. temperature: float32 [N].
    position_ids: int64 [B, T], starting again with each of several items in a row; None for one
    item per row.
    masks: renormalise over the tokens that each of the N was drawn from; None for all tokens.
    top: int64 [N, k], different ids in a row, whose log-probs are computed too; or a number k, for
        the model's most likely ones. The log-prob of all other tokens follows theirs.
    attention_mask: bool [B, 1, T, T], of queries to keys, where positions do not say all; for
        models whose attention is "sdpa" or "eager", without windows.
    entropy: False may leave out the entropies, which is faster; they are then [0].
    Only hidden states of action tokens meet the vocabulary, a chunk at a time. Where the
    probabilities of all would take more than 0.5 GB, the backward pass computes a chunk's logits
    again instead of keeping them. Logits are float32, whatever the type of the params. With a value
    head, the values of the states before the tokens too.
    Raises ConfigError for a k beyond the vocabulary.
    """
    causal_lm = unwrapped(model)
    forward: Callable[..., tuple[Tensor, ...]] = partial(forward_of_head, causal_lm)
    if isinstance(causal_lm, FSDPModule):
        forward = getattr(causal_lm, SHARDED_FORWARD)
    inputs = input_ids, row, column, temperature, position_ids, masks, top, attention_mask
    scores = iter(forward(*inputs, entropy))
    return TokenLogprobs(
        logprobs=next(scores),
        entropy=next(scores),
        top_logprobs=None if top is None else next(scores),
        top_ids=next(scores) if isinstance(top, int) else None,
        values=next(scores, None),
    )


def forward_of_head(
    causal_lm: PreTrainedModel,
    input_ids: Tensor,
    row: Tensor,
    column: Tensor,
    temperature: Tensor,
    position_ids: Tensor | None,
    masks: SamplingMasks | None,
    top: Tensor | int | None,
    attention_mask: Tensor | None,
    entropy: bool,
) -> tuple[Tensor, ...]:
    """As `chunked`, and then values [N] of a model with a value head."""
    # Padding needs no mask: it is on the right, and a causal token never looks there. With a mask,
    # transformers would not look for items in the positions.
    # The decoder alone: the model's `forward` would compute logits of every token.
    inputs, exact = input_ids[:, :-1], causal_lm.config._attn_implementation == EXACT
    decoder = decoder_of(causal_lm)
    context = CONTEXTS.get(causal_lm.config._attn_implementation)
    if context is not None:
        inputs, positions = context.own_tokens(inputs)
        hidden = decoder(
            input_ids=inputs, position_ids=positions, use_cache=False, shared_rows=True
        )[0]
        is_local, at = context.placed(column - 1, input_ids.shape[1] - 1)
        streams = input_ids[row, column][is_local], temperature[is_local]
        masks = None if masks is None else masks.chosen(is_local)
        top = top[is_local] if isinstance(top, Tensor) else top
        scores = _scored(causal_lm, hidden[row[is_local], at], *streams, masks, top, True)
        return tuple(context.completed(part, is_local) for part in scores)
    packed = None if position_ids is None else position_ids[:, :-1]
    with items_apart(decoder, packed):
        hidden = decoder(
            input_ids=padded(inputs, 1) if exact else inputs,
            position_ids=packed,
            attention_mask=_own_mask(attention_mask, packed, causal_lm),
            use_cache=False,
        )[0]
    targets = input_ids[row, column]
    return _scored(causal_lm, hidden[row, column - 1], targets, temperature, masks, top, entropy)


def _scored(
    causal_lm: PreTrainedModel,
    selected: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
    top: Tensor | int | None,
    entropy: bool,
) -> tuple[Tensor, ...]:
    """As `forward_of_head`, of the states [N, D] before the targets [N]."""
    head, size = causal_lm.get_output_embeddings(), vocabulary_of(causal_lm)
    exact = causal_lm.config._attn_implementation == EXACT
    finish = logit_finish(causal_lm.config)
    is_kept = len(targets) * causal_lm.config.get_text_config().vocab_size <= KEPT_PROBABILITIES
    scores: tuple[Tensor, ...]
    if _is_plain(head, selected) and finish is None and top is None and not exact:
        # A part of the matrix gives all of it a gradient of its size.
        weight = head.weight if len(head.weight) == size else head.weight[:size]
        streams = selected, weight, targets, temperature, masks
        scores = plain_logprobs(*streams, entropy=entropy, is_kept=is_kept)
    else:
        head = partial(exact_linear, head) if exact else head
        of_chunk = partial(chunk_logprobs, head, finish, size)
        scores = chunked(of_chunk, selected, targets, temperature, masks, top, is_kept=is_kept)
    value_head = dict(causal_lm.named_children()).get(VALUE_HEAD)
    if value_head is None:
        return scores
    # Beside a frozen base of 16 bits, the head is float32, as all that is trained.
    values = value_head(selected.to(value_head.weight.dtype))
    return (*scores, values[:, 0].float())


def _own_mask(
    mask: Tensor | None, positions: Tensor | None, causal_lm: PreTrainedModel
) -> Tensor | dict[str, Tensor] | None:
    """The mask of all tokens but the last of each row, as the model's attention takes it.

    positions: [B, T - 1], of packed rows. None where the model itself reads them.
    """
    if mask is None:
        config = causal_lm.config.get_text_config()
        if positions is None or config.model_type not in BLIND:
            return None
        like = causal_lm.get_input_embeddings().weight.new_empty(*positions.shape, 0)
        # By kind of layer, where layers have windows.
        own: Tensor | dict[str, Tensor] | None = create_masks_for_generate(
            config, like, None, None, position_ids=positions
        )
        return own
    mask = mask[:, :, :-1, :-1]
    if causal_lm.config._attn_implementation != "eager":
        return mask
    least = torch.finfo(causal_lm.dtype).min
    return torch.zeros_like(mask, dtype=causal_lm.dtype).masked_fill_(~mask, least)


def logit_finish(config: PretrainedConfig) -> LogitFinish | None:
    """A function that makes logits of what the head of such a model returns.

    None for most models, whose head returns the logits.
    """
    text = config.get_text_config()
    factor = 1.0
    for name in FACTORS:
        factor *= getattr(text, name, None) or 1.0
    for name in DIVISORS:
        factor /= getattr(text, name, None) or 1.0
    cap = next((value for name in CAPS if (value := getattr(text, name, None))), None)
    if factor == 1.0 and cap is None:
        return None

    def finished(logits: Tensor) -> Tensor:
        if factor != 1.0:
            logits = logits * factor
        return logits if cap is None else cap * torch.tanh(logits / cap)

    return finished


def _is_plain(head: nn.Module, hidden: Tensor) -> bool:
    """True for a head that is one matrix, of the type of the hidden states."""
    if type(head) is not nn.Linear or "bias" in dict(head.named_parameters(recurse=False)):
        return False
    return head.weight.dtype == hidden.dtype and hidden.dtype in PLAIN_TYPES


def plain_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None = None,
    *,
    entropy: bool = True,
    is_kept: bool = True,
) -> tuple[Tensor, Tensor]:
    """As `chunked`, of a head that is the matrix `weight` [V, D]; entropies may be left out."""
    inputs = hidden, weight, targets, temperature, masks, entropy, is_kept
    scores: tuple[Tensor, Tensor] = _PlainHead.apply(*inputs)  # type: ignore[no-untyped-call]
    return scores


class _PlainHead(torch.autograd.Function):
    """log p_y [N] of the targets y [N], and H = -sum p log p [N], for p = softmax(h W^T / T).

    One pass over chunks of tokens instead of an operation of autograd after the other. The backward
    pass reads the logits, which are kept, or made again where that takes too much memory:

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
        chunks: list[tuple[Tensor, Tensor]] = []
        saved_logits: list[Tensor] = []
        for h, y, t, mask in token_chunks(hidden, targets, temperature, masks):
            logits = float32_logits(h, weight, t, mask)
            chunks.append(read_logits(logits, y, mask is not None, wants_entropy))
            if is_kept and any(ctx.needs_input_grad[:2]):
                saved_logits.append(logits)
        logprobs, entropy = (torch.cat(parts) for parts in zip(*chunks, strict=True))
        ctx.masks = masks
        ctx.save_for_backward(
            hidden, weight, targets, temperature, logprobs, entropy, *saved_logits
        )
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
        hidden, weight, targets, temperature, logprobs, entropy, *saved_logits = ctx.saved_tensors
        for_hidden, for_weight, *_ = ctx.needs_input_grad
        of_hidden: list[Tensor] = []
        of_weight: Tensor | None = None
        slopes = [None if g is None else g / temperature for g in (of_logprob, of_entropy)]
        at = 0
        for k, (h, y, t, mask) in enumerate(token_chunks(hidden, targets, temperature, ctx.masks)):
            chunk = slice(at, at := at + len(h))
            less = saved_logits[k] if saved_logits else float32_logits(h, weight, t, mask)
            if not saved_logits:
                read_logits(less, y, mask is not None, False)
            for_logprob, for_entropy = (None if each is None else each[chunk] for each in slopes)
            stats = logprobs[chunk], entropy[chunk]
            slope, scale = logit_gradient(less, y, stats, for_logprob, for_entropy, weight.dtype)
            if for_hidden:
                product = slope @ weight
                of_hidden.append(product if scale is None else product.mul_(scale[:, None]))
            if for_weight:
                right = h if scale is None else h * scale[:, None]
                of_weight = added_in_float32(of_weight, slope.t(), right)
        return (
            torch.cat(of_hidden) if for_hidden else None,
            None if of_weight is None else of_weight.to(weight.dtype),
            *(None,) * 5,
        )


def read_logits(
    logits: Tensor, targets: Tensor, is_masked: bool, wants_entropy: bool
) -> tuple[Tensor, Tensor]:
    """Log-probs of the targets and entropies [N] by logits [N, V], which become p - onehot(y)."""
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


def logit_gradient(
    less: Tensor,
    targets: Tensor,
    stats: tuple[Tensor, Tensor],
    of_logprob: Tensor | None,
    of_entropy: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """Gradient of the logits in `dtype`, and factors [N] by which its rows are still multiplied.

    less: p - onehot(y). stats: what `read_logits` returned. of_logprob, of_entropy: gradients [N]
    with respect to these, divided by the temperature; None for none.
    """
    logprobs, entropy = stats
    scale = torch.zeros_like(logprobs) if of_logprob is None else -of_logprob
    if of_entropy is not None:
        # -p (log p + H). At the target p is made anew: 1 + (p - 1) has lost digits of a small p.
        p = less.scatter(-1, targets[:, None], logprobs.exp()[:, None])
        slope = torch.special.entr(p).addcmul_(p, entropy[:, None], value=-1)
        less = less * scale[:, None] + slope * of_entropy[:, None]
        return less.to(dtype), None
    # float32 rows are scaled where they are short, in D; others are rounded once, scale included.
    if dtype == torch.float32:
        return less, scale
    return torch.mul(less, scale[:, None], out=torch.empty_like(less, dtype=dtype)), None


def token_chunks(
    hidden: Tensor, targets: Tensor, temperature: Tensor, masks: SamplingMasks | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, SamplingMasks | None]]:
    """Hidden states, targets, temperatures and masks of CHUNK_TOKENS tokens after the others."""
    streams = (torch.split(each, CHUNK_TOKENS) for each in (hidden, targets, temperature))
    of_masks = repeat(None) if masks is None else masks.split(CHUNK_TOKENS)
    return zip(*streams, of_masks, strict=False)


def float32_logits(
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


def added_in_float32(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
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
    tops = torch.split(top, CHUNK_TOKENS) if isinstance(top, Tensor) else repeat(top)
    run = of_chunk if is_kept else partial(checkpoint, of_chunk, use_reentrant=False)
    streams = token_chunks(hidden, targets, temperature, masks)
    # Not strict, because `repeat` never ends.
    chunks = [run(*chunk, top) for chunk, top in zip(streams, tops, strict=False)]
    return tuple(map(torch.cat, zip(*chunks, strict=True)))


def chunk_logprobs(
    head: Head,
    finish: LogitFinish | None,
    size: int,
    hidden: Tensor,
    targets: Tensor,
    temperature: Tensor,
    masks: SamplingMasks | None,
    top: Tensor | int | None = None,
) -> tuple[Tensor, ...]:
    """As `chunked`, with all logits at once, of the first `size` ids.

    Raises ConfigError for a top above their number.
    """
    logits = _float32_logits(head, hidden)[:, :size]
    # The sampler's distribution is of logits / temperature, and so are the log-probs it reports.
    logits = (logits if finish is None else finish(logits)) / temperature[:, None]
    if masks is not None:
        # In place: another tensor of floats of this size would double the chunk's memory.
        logits.masked_fill_(outside(masks, logits), -torch.inf)
    if not isinstance(top, int):
        return logits_logprobs(logits, targets, top)
    if top > logits.shape[1]:
        raise ConfigError(
            f"the {top} most likely tokens of a vocabulary of {logits.shape[1]}: choose a smaller k"
        )
    ids = logits.topk(top).indices
    return (*logits_logprobs(logits, targets, ids), ids)


def logits_logprobs(
    logits: Tensor, targets: Tensor, top: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Log-probs and entropies [N] of the targets [N] by logits [N, V].

    With ids `top` [N, k], the log-probs [N, k + 1] of these and of all others together.
    """
    scores: tuple[Tensor, ...] = _LogprobAndEntropy.apply(logits, targets, top)  # type: ignore[no-untyped-call]
    return scores


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
        top_logprobs = None if top is None else _with_rest(logprobs, top)
        p = logprobs.exp()
        # `entr` would take the logarithm again. Finite, because 0 x -inf is no number; and
        # subtracted from 0, because the negative of 0 prints as -0.
        entropy = 0.0 - logprobs.clamp_(min=torch.finfo(p.dtype).min).mul_(p).sum(-1)
        ctx.save_for_backward(p, targets, entropy, top, top_logprobs)
        return (chosen, entropy) if top_logprobs is None else (chosen, entropy, top_logprobs)

    @staticmethod
    # p is kept as a number: a second derivative would silently leave out how it depends on the
    # logits.
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        *gradients: Tensor | None,
    ) -> tuple[Tensor | None, None, None]:
        of_logprob, of_entropy, *of_top = gradients
        p, targets, entropy, top, top_logprobs = ctx.saved_tensors
        gradient = None
        if of_logprob is not None:
            gradient = p * -of_logprob[:, None]
            gradient.scatter_add_(-1, targets[:, None], of_logprob[:, None])
        if of_top and of_top[0] is not None:
            ids, upstream = top, of_top[0]
            of_ids, of_rest, total = upstream[:, :-1], upstream[:, -1:], upstream.sum(-1, True)
            # Below this bound p is hardly representable; without others, p_R = 0, and no gradient.
            slope = p * (of_rest * torch.exp(-top_logprobs[:, -1:].clamp(min=LEAST_REST)) - total)
            slope.scatter_(-1, ids, of_ids - p.gather(-1, ids) * total)
            gradient = slope if gradient is None else gradient.add_(slope)
        # Most losses only report the entropy.
        if of_entropy is not None:
            slope = torch.special.entr(p).addcmul_(p, entropy[:, None], value=-1)
            slope.mul_(of_entropy[:, None])
            gradient = slope if gradient is None else gradient.add_(slope)
        return gradient, None, None


def _with_rest(logprobs: Tensor, ids: Tensor) -> Tensor:
    """Log-probs [N, k + 1] of the ids [N, k] and of all others together, of log-probs [N, V]."""
    id_logprobs = logprobs.gather(-1, ids)
    # In place and back again: a copy would be one more tensor of this size. Not 1 - sum of the ids'
    # probabilities, which has no digits left where the ids have nearly all of the probability.
    logprobs.scatter_(-1, ids, -torch.inf)
    rest = logprobs.logsumexp(-1, keepdim=True)
    logprobs.scatter_(-1, ids, id_logprobs)
    return torch.cat([id_logprobs, rest], -1)


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
