"""One token a row from logits, with noise that depends on the row's own seed and position alone."""

from __future__ import annotations

import torch
from torch import Tensor

# splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), as signed 64-bit integers.
GOLDEN = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """One number in [0, 1) per (seed, position) pair of int64, float64; equal pairs, equal numbers.

    The seed is hashed before the position is added, so that neighbouring seeds share no numbers.
    """
    bits = _mixed(_mixed(seeds + GOLDEN) + positions * GOLDEN)
    # 52 bits, so that a number times a total stays below the total after rounding.
    return _shifted(bits, 12).double() * 2.0**-52


def choose(
    logits: Tensor, temperature: Tensor, top_p: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor]:
    """A token per row and its log-prob in nats, float32, under the distribution it was drawn from.

    logits: [B, V]; the others [B]. The distribution is softmax(logits / temperature), cut to the
    smallest set of tokens that holds `top_p` of it and renormalised (Holtzman et al. 2020,
    arXiv:1904.09751). A row of temperature 0 gets its likeliest token, with the log-prob it has at
    temperature 1. The drawn token is where the cumulative distribution passes `uniform`: rounding
    of logits (about 1e-7, it varies with the batch) can change it only if it moves that very point.
    """
    greedy = temperature == 0
    logprobs = torch.log_softmax(logits.float() / temperature.masked_fill(greedy, 1)[:, None], -1)
    if bool(((top_p < 1) & ~greedy).any()):
        logprobs = _cut_to_nucleus(logprobs, top_p.masked_fill(greedy, 1))
    cumulative = logprobs.double().exp().cumsum(-1)
    point = uniform[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, point, right=True)
    ids = torch.where(greedy[:, None], logprobs.argmax(-1, keepdim=True), drawn)
    return ids[:, 0], logprobs.gather(1, ids.clamp_max(logits.shape[1] - 1))[:, 0]


def _cut_to_nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probs = ordered.double().exp()
    # A token belongs to the nucleus if those before it do not reach top_p yet.
    outside = probs.cumsum(-1) - probs >= top_p[:, None]
    cut = torch.empty_like(logprobs).scatter_(1, order, ordered.masked_fill(outside, -torch.inf))
    renormalised = torch.log_softmax(cut, -1)
    return torch.where(top_p[:, None] < 1, renormalised, logprobs)


def _mixed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * MIX_1
    bits = (bits ^ _shifted(bits, 27)) * MIX_2
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Logical right shift, which torch lacks: the sign bit must not be copied."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
