"""One token a row from logits, with noise that depends on the row's own seed and position alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195).
GOLDEN, MIX_1, MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Keys = NDArray[np.uint64]


def noise_keys(seeds: Sequence[int]) -> Keys:
    """A key for the noise of each seed: neighbouring seeds share no numbers."""
    return _mixed(np.array([seed % 2**64 for seed in seeds], np.uint64) + GOLDEN)


def uniforms(keys: Keys, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each key and position; equal pairs give equal numbers."""
    bits = _mixed(keys + positions.astype(np.uint64) * GOLDEN)
    # 52 bits, so that a number times a total stays below the total after rounding.
    return np.ldexp((bits >> np.uint64(12)).astype(np.float64), -52)


def choose(
    logits: Tensor,
    temperature: NDArray[np.float32],
    top_p: NDArray[np.float32],
    uniform: NDArray[np.float64],
) -> tuple[Tensor, Tensor]:
    """A token per row and its log-prob in nats, float32, under the distribution it was drawn from.

    logits: [B, V]; the others [B]. The distribution is softmax(logits / temperature), cut to the
    smallest set of tokens that holds `top_p` of it and renormalised (Holtzman et al. 2020,
    arXiv:1904.09751). A row of temperature 0 gets its likeliest token, with the log-prob it has at
    temperature 1. The drawn token is where the cumulative distribution passes `uniform`: rounding
    of logits (about 1e-7, it varies with the batch) can change it only if it moves that very point.
    """
    logprobs = log_distribution(logits, temperature, top_p)
    greedy = temperature == 0
    ids = _drawn(logprobs, torch.from_numpy(uniform).to(logits.device))
    if greedy.any():
        likeliest = logprobs.argmax(-1, keepdim=True)
        ids = torch.where(torch.from_numpy(greedy).to(logits.device)[:, None], likeliest, ids)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]


def log_distribution(
    logits: Tensor, temperature: NDArray[np.float32], top_p: NDArray[np.float32]
) -> Tensor:
    """Nats [B, V] of what `choose` draws from; -inf outside the nucleus."""
    greedy = temperature == 0
    temperature, top_p = np.where(greedy, 1, temperature), np.where(greedy, 1, top_p)
    logits = logits.float()
    if (temperature != 1).any():
        logits = logits / torch.from_numpy(temperature).to(logits.device)[:, None]
    logprobs = torch.log_softmax(logits, -1)
    if (top_p < 1).any():
        logprobs = _cut_to_nucleus(logprobs, torch.from_numpy(top_p).to(logits.device))
    return logprobs


def _drawn(logprobs: Tensor, uniform: Tensor) -> Tensor:
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    point = uniform[:, None] * cumulative[:, -1:]
    # Only numbers that are none have no place; whoever reads their log-prob will see.
    return torch.searchsorted(cumulative, point, right=True).clamp_max_(logprobs.shape[1] - 1)


def _cut_to_nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probs = ordered.double().exp()
    # A token belongs to the nucleus if those before it do not reach top_p yet.
    outside = probs.cumsum(-1) - probs >= top_p[:, None]
    cut = torch.empty_like(logprobs).scatter_(1, order, ordered.masked_fill(outside, -torch.inf))
    renormalised = torch.log_softmax(cut, -1)
    return torch.where(top_p[:, None] < 1, renormalised, logprobs)


def _mixed(bits: Keys) -> Keys:
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))
