"""Tokens drawn from logits.

The noise of a draw depends on the row's own seed and position alone, so that a request gives the
same text in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludic_gym.types import Sampling

# splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195).
GOLDEN, MIX_1, MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Keys = NDArray[np.uint64]
# The fields of `Sampling` that decide what each row's token is drawn from.
DRAW = [
    ("temperature", np.float32),
    ("top_p", np.float32),
    ("top_k", np.int64),
    ("min_p", np.float32),
]
# [B] of DRAW, or of a type that has these fields among others.
Draws = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens that were drawn, one per row.

    ids: int64 [B]. logprobs: float32 [B] nats, under the distribution that each was drawn from.
    masks: per row the ids that it was drawn from; None for rows that leave no token out.
    """

    ids: Tensor
    logprobs: Tensor
    masks: Sequence[NDArray[np.int64] | None]


def noise_keys(seeds: Sequence[int]) -> Keys:
    """A key for the noise of each seed: neighbouring seeds share no numbers."""
    return _mixed(np.array([seed % 2**64 for seed in seeds], np.uint64) + GOLDEN)


def uniforms(keys: Keys, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each key and position; equal pairs give equal numbers."""
    bits = _mixed(keys + positions.astype(np.uint64) * GOLDEN)
    # 52 bits, so that a number times a total stays below the total after rounding.
    return np.ldexp((bits >> np.uint64(12)).astype(np.float64), -52)


def draws_of(samplings: Iterable[Sampling]) -> Draws:
    """The samplings as an array of DRAW."""
    return np.array([(s.temperature, s.top_p, s.top_k, s.min_p) for s in samplings], DRAW)


def choose(logits: Tensor, draws: Draws, uniform: NDArray[np.float64]) -> Drawn:
    """A token per row, drawn from softmax(logits / temperature) of the tokens not left out.

    logits: [B, V]; draws, uniform: [B].
    min_p leaves out tokens with less than that share of the likeliest one's probability
    (arXiv:2407.01082), then top_k all but the likeliest, then top_p those beyond the smallest set
    that holds that share of the rest (Holtzman et al. 2020, arXiv:1904.09751): the order of vLLM.
    A row of temperature 0 gets its likeliest token, with the log-prob it has at temperature 1. The
    drawn token is where the cumulative distribution passes `uniform`: rounding of logits (about
    1e-7, it varies with the batch) can change it only if it moves that very point.
    """
    logprobs = log_distribution(logits, draws)
    # float64, because 150 000 float32 terms lose the last of them. Times the total and not 1: the
    # sum of rounded probabilities is not exactly 1.
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    point = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulative[:, -1:]
    # Only nan has no place. The clamp keeps the index valid, and the log-prob stays nan for the
    # engine to refuse.
    ids = torch.searchsorted(cumulative, point, right=True).clamp_max_(logprobs.shape[1] - 1)
    greedy = draws["temperature"] == 0
    if greedy.any():
        likeliest = logprobs.argmax(-1, keepdim=True)
        ids = torch.where(torch.from_numpy(greedy).to(logits.device)[:, None], likeliest, ids)
    masks: list[NDArray[np.int64] | None] = [None] * len(logits)
    for i in np.flatnonzero(_leaves_out(draws)):
        masks[i] = logprobs[i].isfinite().nonzero()[:, 0].cpu().numpy()
    return Drawn(ids[:, 0], logprobs.gather(1, ids)[:, 0], masks)


def log_distribution(logits: Tensor, draws: Draws) -> Tensor:
    """Nats [B, V] of what `choose` draws from; -inf for tokens that are left out."""
    temperature = np.where(draws["temperature"] == 0, 1, draws["temperature"])
    logits = logits.float()
    if (temperature != 1).any():
        logits = logits / torch.from_numpy(temperature).to(logits.device)[:, None]
    leaves_out = _leaves_out(draws)
    if leaves_out.any():
        rows = torch.from_numpy(np.flatnonzero(leaves_out)).to(logits.device)
        outside = _outside(logits[rows].log_softmax(-1), draws[leaves_out])
        # Of the logits, as the trainer does: the log-probs are then equal to the bit.
        logits = logits.index_copy(0, rows, logits[rows].masked_fill(outside, -torch.inf))
    return torch.log_softmax(logits, -1)


def _leaves_out(draws: Draws) -> NDArray[np.bool_]:
    """`leaves_out_tokens` of each row."""
    is_cut = (draws["top_p"] < 1) | (draws["top_k"] > 0) | (draws["min_p"] > 0)
    return np.asarray(is_cut & (draws["temperature"] > 0))


def _outside(logprobs: Tensor, draws: Draws) -> Tensor:
    """True for the tokens that each row leaves out, [B, V]."""
    top_p, top_k, min_p = (
        torch.from_numpy(draws[name].copy()).to(logprobs.device)[:, None]
        for name in ("top_p", "top_k", "min_p")
    )
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(ordered.shape[1], device=ordered.device)
    outside = (ordered < ordered[:, :1] + min_p.log()) | ((top_k > 0) & (rank >= top_k))
    probs = ordered.double().exp().masked_fill_(outside, 0)
    # A token belongs to the nucleus if those before it do not reach top_p yet.
    reached = probs.cumsum(-1) - probs >= top_p * probs.sum(-1, keepdim=True)
    outside |= (top_p < 1) & reached
    return torch.empty_like(outside).scatter_(1, order, outside)


def _mixed(bits: Keys) -> Keys:
    """The finalizer of splitmix64: every bit of the input changes half of the output."""
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))
