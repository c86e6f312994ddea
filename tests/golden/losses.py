"""The numbers of losses.json as tensors, for every test that compares with them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ludic_train.types import PROXIMAL, REFERENCE, LossBatch, TokenLogprobs

DATA = json.loads(Path(__file__).with_suffix(".json").read_text())
INPUTS = DATA["inputs"]
COUNTS = INPUTS["tokens_per_row"]


@dataclass
class Row:
    action_mask: np.ndarray
    group: str = ""
    rollout: str = ""


def rows():
    """Rows of 5 tokens with the golden mask and groups."""
    return [
        Row(np.arange(5) < n, str(group)) for n, group in zip(COUNTS, INPUTS["group"], strict=True)
    ]


def tokens(name):
    return torch.tensor(INPUTS[name], dtype=torch.float64)


def per_token(values):
    """[rows] to [N]."""
    return torch.tensor(values, dtype=torch.float64).repeat_interleave(torch.tensor(COUNTS))


def batch(aggregation, *, sampler="old_logp"):
    scale = np.concatenate(aggregation(rows())).astype(np.float64)
    return LossBatch(
        weight=per_token(INPUTS["weight_per_row"]),
        scale=torch.from_numpy(scale),
        rollout=per_token(range(4)).long(),
        num_rollouts=4,
        behavior_logprobs=tokens(sampler),
        attachments={REFERENCE: tokens("ref_logp"), PROXIMAL: tokens("old_logp")},
    )


def forward(dtype=torch.float64):
    logprobs = tokens("new_logp").to(dtype).requires_grad_()
    return TokenLogprobs(logprobs=logprobs, entropy=torch.zeros_like(logprobs))


def value_and_grad(loss, given, out=None):
    out = out or forward()
    value, _ = loss(out, given)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    return value.item(), grad


def sub_batch(given, index):
    """The micro-batch of the tokens in `index`."""
    names = ("weight", "scale", "rollout", "behavior_logprobs", "lag")
    parts = {n: getattr(given, n)[index] for n in names if getattr(given, n) is not None}
    attached = {name: tensor[index] for name, tensor in given.attachments.items()}
    return replace(given, **parts, attachments=attached)
