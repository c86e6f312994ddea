"""Log-probs and entropies of action tokens, in memory that does not grow with the vocabulary."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from transformers import PretrainedConfig, PreTrainedModel

from ludic_train.models.context_parallel import CONTEXTS
from ludic_train.models.exact import EXACT, exact_linear, padded
from ludic_train.models.heads import LogitFinish, SamplingMasks, chunk_logprobs, chunked
from ludic_train.models.plain_head import is_plain, plain_logprobs
from ludic_train.types import TokenLogprobs

if TYPE_CHECKING:
    from peft import PeftModel

# So many probabilities, 0.5 GB, are kept for the backward pass; more are computed again by it.
KEPT_PROBABILITIES = 2**27
VALUE_HEAD = "value_head"
# Names in configs: Cohere, Falcon H1 and others multiply, Granite divides, and Gemma and others
# bend large logits by cap * tanh(logits / cap), arXiv:2408.00118.
FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
DIVISORS = ("logits_scaling",)
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_SHARDED_FORWARD = "sharded_forward"


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
    forward: Callable[..., tuple[Tensor, ...]] = partial(_forward, causal_lm)
    if isinstance(causal_lm, FSDPModule):
        forward = getattr(causal_lm, _SHARDED_FORWARD)
    inputs = input_ids, row, column, temperature, position_ids, masks, top, attention_mask
    found = iter(forward(*inputs, entropy))
    return TokenLogprobs(
        logprobs=next(found),
        entropy=next(found),
        top_logprobs=None if top is None else next(found),
        top_ids=next(found) if isinstance(top, int) else None,
        values=next(found, None),
    )


def gather_for_logprobs(causal_lm: nn.Module) -> None:
    """Make `action_logprobs` of a sharded model gather the params that no block of it holds.

    causal_lm: the model that `fully_shard` was applied to, changed in place.
    FSDP gathers these where the model's own `forward` is called, which computes all logits.
    """
    setattr(causal_lm, _SHARDED_FORWARD, MethodType(_forward_without_views, causal_lm))
    register_fsdp_forward_method(causal_lm, _SHARDED_FORWARD)


def is_adapted(model: nn.Module | None) -> TypeGuard[PeftModel]:
    """True for a model with adapters."""
    # Only peft makes one, and importing it takes a third of a second.
    if "peft" not in sys.modules:
        return False
    from peft import PeftModel

    return isinstance(model, PeftModel)


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, its adapters in place; or the model itself.

    Its decoder and output head can be called apart, which a peft wrapper does not offer.
    """
    inner: PreTrainedModel = model.get_base_model() if is_adapted(model) else model
    return inner


def _forward(
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
    context = CONTEXTS.get(causal_lm.config._attn_implementation)
    if context is not None:
        inputs, positions = context.own_tokens(inputs)
        hidden = causal_lm.get_decoder()(
            input_ids=inputs, position_ids=positions, use_cache=False, shared_rows=True
        )[0]
        own, at = context.placed(column - 1, input_ids.shape[1] - 1)
        streams = input_ids[row, column][own], temperature[own]
        masks = None if masks is None else masks.chosen(own)
        top = top[own] if isinstance(top, Tensor) else top
        found = _scored(causal_lm, hidden[row[own], at], *streams, masks, top, True)
        return tuple(context.completed(part, own) for part in found)
    hidden = causal_lm.get_decoder()(
        input_ids=padded(inputs, 1) if exact else inputs,
        position_ids=None if position_ids is None else position_ids[:, :-1],
        attention_mask=_form_of(attention_mask, causal_lm),
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
    """As `_forward`, of the states [N, D] before the targets [N]."""
    head = causal_lm.get_output_embeddings()
    exact = causal_lm.config._attn_implementation == EXACT
    finish = logit_finish(causal_lm.config)
    is_kept = len(targets) * causal_lm.config.get_text_config().vocab_size <= KEPT_PROBABILITIES
    found: tuple[Tensor, ...]
    if is_plain(head, selected) and finish is None and top is None and not exact:
        found = plain_logprobs(selected, head.weight, targets, temperature, masks, entropy, is_kept)
    else:
        head = partial(exact_linear, head) if exact else head
        of_chunk = partial(chunk_logprobs, head, finish or _unchanged)
        found = chunked(of_chunk, selected, targets, temperature, masks, top, is_kept=is_kept)
    value_head = dict(causal_lm.named_children()).get(VALUE_HEAD)
    if value_head is None:
        return found
    # Beside a frozen base of 16 bits, the head is float32, as all that is trained.
    values = value_head(selected.to(value_head.weight.dtype))
    return (*found, values[:, 0].float())


def _form_of(mask: Tensor | None, causal_lm: PreTrainedModel) -> Tensor | None:
    """The mask of all tokens but the last of each row, as the model's attention takes it."""
    if mask is None:
        return None
    mask = mask[:, :, :-1, :-1]
    if causal_lm.config._attn_implementation != "eager":
        return mask
    least = torch.finfo(causal_lm.dtype).min
    return torch.zeros_like(mask, dtype=causal_lm.dtype).masked_fill_(~mask, least)


def _forward_without_views(
    causal_lm: PreTrainedModel,
    *inputs: Any,  # noqa: ANN401 - those of `_forward`
) -> tuple[Tensor, ...]:
    # FSDP hangs its backward hooks on what a forward method returns, and warns of views.
    return tuple(tensor.clone() for tensor in _forward(causal_lm, *inputs))


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
    return partial(_finished, factor=factor, cap=cap)


def _finished(logits: Tensor, *, factor: float, cap: float | None) -> Tensor:
    """The logits scaled, and then capped."""
    if factor != 1.0:
        logits = logits * factor
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _unchanged(logits: Tensor) -> Tensor:
    """The logits of a head without a finish."""
    return logits
