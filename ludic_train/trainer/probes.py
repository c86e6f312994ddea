"""Tests of a model before its first update: is it scored as it scores itself?

Each is a forward pass or two over four rows of 16 tokens, on all ranks together.
"""

from __future__ import annotations

import copy
import logging

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ludic_train.errors import UnsupportedModel
from ludic_train.models.checkpoint_names import checkpoint_params, model_params
from ludic_train.models.exact import is_exact
from ludic_train.models.head import action_logprobs
from ludic_train.models.modules import unwrapped, vocabulary_of
from ludic_train.trainer.packing import mask_of_positions

ROWS, WIDTH, HALF = 4, 16, 8
# Implementations of attention that read the mask they are given.
MASKED_ATTENTION = ("sdpa", "eager")
# In nats, by the type that is computed with: the model's own 16-bit logits are rounded, ours not.
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-4}
ROUNDING_OF_16_BITS = 0.1
# Of float32 products on a card, where they may have factors of 10 bits (TF32).
ROUNDING_OF_TF32 = 0.01
# A packed row is another shape, and takes other kernels: so many times the noise of another shape.
TIMES_NOISE = 3.0
# Of params.
LARGEST_SENT = 2**32


def check_logprobs(model: nn.Module, device: str = "cpu") -> None:
    """Compare the trainer's log-probs with those of the model's own `forward`.

    The trainer calls the decoder and the head apart, and must know all that a model does after
    its head. Raises UnsupportedModel, with the difference in nats, where it does not.
    """
    difference, allowed = logprob_difference(model, device)
    if not difference <= allowed:
        inner = unwrapped(model)
        raise UnsupportedModel(
            f"the trainer's log-probs of {type(inner).__name__} (model_type "
            f"{inner.config.model_type!r}) are {difference:.3g} nats per token from the model's "
            "own: it does something with its logits that is not known here, and training would go "
            "wrong silently"
        )


@torch.no_grad()
def logprob_difference(model: nn.Module, device: str = "cpu") -> tuple[float, float]:
    """Nats per token between the trainer's log-probs and the model's own; those of rounding."""
    ids = _ids(device)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1, : vocabulary_of(model)]
    logprobs = logits.float().log_softmax(-1)
    expected = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    # The mean, because single tokens of 16-bit logits are further off.
    difference = float((_scores(model, ids, None) - expected).abs().mean())
    return difference, _rounding_of(logits)


@torch.no_grad()
def check_sent(model: nn.Module) -> None:
    """Compare the model with one that is made of what a publisher sends, by log-probs.

    What trains is moved at random first: new adapters change nothing yet, and one that is lost on
    the way would not be missed. The model itself stays as it is.
    Raises UnsupportedModel, with the difference in nats, and ConfigError for adapters that cannot
    be merged. Models of more than LARGEST_SENT bytes, of which a second copy may have no room, are
    taken as they are: `ludic doctor` compares a server with them.
    """
    inner = unwrapped(model)
    params: dict[str, Tensor] = dict(model.named_parameters())
    if sum(param.nbytes for param in params.values()) > LARGEST_SENT:
        return
    generator = torch.Generator().manual_seed(0)
    for name, param in params.items():
        if param.requires_grad:
            noise = torch.randn(param.shape, generator=generator).to(param)
            params[name] = param + (0.1 * param.std(correction=0) + 0.02) * noise
    ids = _ids(str(inner.device))
    own = functional_call(model, params, kwargs={"input_ids": ids, "use_cache": False}).logits
    values = model_params(inner, dict(checkpoint_params(params.items(), model)))
    with torch.device("meta"):
        twin = type(inner)(copy.deepcopy(inner.config)).eval()
    # Those that are computed from the config, and in no checkpoint.
    values = dict(inner.named_buffers()) | values
    sent = functional_call(twin, values, kwargs={"input_ids": ids, "use_cache": False}).logits
    off = (own.float().log_softmax(-1) - sent.float().log_softmax(-1)).abs().mean()
    # A merged adapter is a sum in another order.
    if not off <= 10 * _rounding_of(own):
        raise UnsupportedModel(
            f"what servers would be sent computes log-probs {float(off):.3g} nats per token away "
            f"from those of {type(inner).__name__} (model_type {inner.config.model_type!r}): they "
            "would sample from another model than the one that trains"
        )


def padding_reason(model: nn.Module, device: str = "cpu") -> str | None:
    """None if items may share rows; otherwise the reason, which is logged as a warning too.

    The trainer then pads rows, which costs time and leaves results as they are.
    """
    if is_exact(model):
        return "its exact attention takes an item for the whole row"
    reason = reason_not_to_pack(model, device)
    if reason is not None:
        logging.getLogger(__name__).warning(
            "%s in %s; rows are padded instead", reason, type(unwrapped(model)).__name__
        )
    return reason


@torch.no_grad()
def reason_not_to_pack(model: nn.Module, device: str = "cpu") -> str | None:
    """None if items that share a row leave each other alone, and are scored as they are alone.

    Measured on two rows of two items, because architectures and attention kernels differ in how
    they read positions that start again. Chunks of attention are wider than these rows, so they are
    found in the config.
    """
    if getattr(unwrapped(model).config.get_text_config(), "attention_chunk_size", None):
        return "attention is in chunks that count from the start of a row"
    ids = _ids(device)
    alone = _scores(model, ids, None)
    positions = torch.arange(WIDTH, device=device).repeat(2, 2)
    packed = _scores(model, ids.view(2, 2 * WIDTH), positions)
    other = ids.view(2, 2 * WIDTH).clone()
    other[:, :WIDTH] += 7
    # The second half of a row must not notice that the first one changed.
    beside_others = _scores(model, other, positions)
    # The same rows in another shape: what follows a token never counts.
    wide = _scores(model, torch.cat([ids, ids], 1), None)[::2]
    noise = float((wide - alone).abs().max())
    if _differ(model, packed[1::2], beside_others[1::2], noise):
        return "items that share a row see each other"
    difference = float((packed - alone).abs().max())
    if difference <= max(_rounding(model, ids), TIMES_NOISE * noise):
        return None
    return f"an item in a shared row is scored {difference:.2g} nats away from alone"


def may_share_prompts(model: nn.Module, device: str = "cpu") -> bool:
    """True if items may share a prompt; otherwise the reason is logged.

    The trainer then computes the prompt once per item, which costs time and leaves results as they
    are.
    """
    reason = reason_not_to_share_prompts(model, device)
    if reason is not None:
        logging.getLogger(__name__).info(
            "%s in %s; prompts are computed once per row", reason, type(unwrapped(model)).__name__
        )
    return reason is None


@torch.no_grad()
def reason_not_to_share_prompts(model: nn.Module, device: str = "cpu") -> str | None:
    """None if items that share a prompt leave each other alone, and are scored as they are alone.

    Measured on four items of one prompt. Windows are wider than these items, so attention layers
    that have one are found in the config.
    """
    config = unwrapped(model).config.get_text_config()
    if config._attn_implementation not in MASKED_ATTENTION:
        return f"attention {config._attn_implementation!r} takes no mask of its own"
    settings = config.to_dict()
    kinds = {*(settings.get("layer_types") or ())} - {"full_attention"}
    # Where there are layer types, they say which layers have a window.
    windows = [n for n, value in settings.items() if "window" in n and value]
    if kinds or (windows and not settings.get("layer_types")):
        return f"attention is not over all tokens ({', '.join(sorted(kinds) or windows)})"
    ids = _ids(device)
    ids[:, :HALF] = ids[0, :HALF]
    alone = _scores(model, ids, None)[:, HALF - 1 :]
    other = ids.clone()
    other[0, HALF:] += 7
    try:
        shared, beside_other = _scores_of_family(model, ids), _scores_of_family(model, other)
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        # An architecture of its own may do anything with a mask of this form.
        return f"a mask of its own is refused ({error})"
    noise = float((_scores(model, ids[:1], None)[:, HALF - 1 :] - alone[:1]).abs().max())
    if _differ(model, shared[1:], beside_other[1:], noise):
        return "items that share a prompt see each other"
    difference = float((shared - alone).abs().max())
    if difference <= max(_rounding(model, ids), TIMES_NOISE * noise):
        return None
    return f"an item that shares its prompt is scored {difference:.2g} nats away from alone"


def _scores_of_family(model: nn.Module, ids: Tensor) -> Tensor:
    """Log-probs [items, HALF] of the second halves of items [items, WIDTH] of one first half."""
    rest = ids[:, HALF - 1 :]
    row = torch.cat([ids[0, :HALF], rest.flatten()])[None]
    positions = torch.arange(WIDTH, device=ids.device)
    position_ids = torch.cat([positions[:HALF], positions[HALF - 1 :].repeat(len(ids))])[None]
    columns = torch.arange(rest.numel(), device=ids.device).view_as(rest)[:, 1:].flatten() + HALF
    ones = torch.ones(len(columns), device=ids.device)
    mask = mask_of_positions(position_ids)
    scored = action_logprobs(
        model, row, torch.zeros_like(columns), columns, ones, position_ids, attention_mask=mask
    )
    return scored.logprobs.view(len(ids), -1)


def _rounding(model: nn.Module, ids: Tensor) -> float:
    """Nats per token by which the model's own logits are rounded."""
    return _rounding_of(model(input_ids=ids[:, :2], use_cache=False).logits)


def _rounding_of(logits: Tensor) -> float:
    has_tf32 = logits.is_cuda and torch.get_float32_matmul_precision() != "highest"
    if logits.dtype == torch.float32 and has_tf32:
        return ROUNDING_OF_TF32
    return ROUNDING.get(logits.dtype, ROUNDING_OF_16_BITS)


def _differ(model: nn.Module, one: Tensor, other: Tensor, noise: float) -> bool:
    """True for scores that differ by more than rounding."""
    # An expert multiplies the tokens of all items at once, so that others change its rounding.
    has_experts = "expert" in " ".join(unwrapped(model).config.get_text_config().to_dict())
    allowed = max(1e-6, TIMES_NOISE * noise) if has_experts else 1e-6
    return not torch.allclose(one, other, rtol=0, atol=allowed)


def _ids(device: str) -> Tensor:
    """Rows of tokens that differ, [ROWS, WIDTH]."""
    return torch.arange(1, ROWS * WIDTH + 1, device=device).view(ROWS, WIDTH)


def _scores(model: nn.Module, ids: Tensor, positions: Tensor | None) -> Tensor:
    """Log-probs of the last WIDTH - 1 of each WIDTH tokens, [items, WIDTH - 1]."""
    row, column = torch.nonzero(torch.arange(ids.shape[1]).expand(ids.shape) % WIDTH, as_tuple=True)
    row, column = row.to(ids.device), column.to(ids.device)
    temperature = torch.ones(len(row), device=ids.device)
    logprobs = action_logprobs(model, ids, row, column, temperature, positions).logprobs
    return logprobs.view(-1, WIDTH - 1)
