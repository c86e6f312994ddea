"""Tokens drawn from logits, and the scores of tokens that are already there.

The noise of a draw depends on the row's own seed and position alone, so that a request gives the
same text in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195).
GOLDEN, MIX_1, MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Keys = NDArray[np.uint64]
# Nats by token id: the token itself first, then the likeliest ones, likeliest first.
Scores = Mapping[int, float]
# Logits of more rows at a time would take gigabytes with a large vocabulary.
ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Settings of scores: the number of likeliest tokens to add; the rest as in Sampling."""

    top: int = 0
    temperature: float = 1.0
    top_p: float = 1.0


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


def scores(
    causal: PreTrainedModel, ids: Sequence[int], first: int, ranking: Ranking
) -> list[Scores]:
    """The scores of each of `ids[first:]`, given what comes before it; first is at least 1.

    The distribution is the one that `sampling.choose` draws from; tokens outside it get -inf.
    Call it under `torch.inference_mode()`, with the model in eval mode.
    """
    row = torch.tensor([list(ids[:-1])], device=causal.lm_head.weight.device)
    hidden = causal.model(row, use_cache=False).last_hidden_state[0, first - 1 :]
    found: list[Scores] = []
    for start in range(0, len(hidden), ROWS):
        logits = causal.lm_head(hidden[start : start + ROWS])
        found += _ranked(logits, ids[first + start :], ranking)
    return found


def _drawn(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """The token at which each row's cumulative distribution passes its number, [B, 1]."""
    # float64, because 150 000 float32 terms lose the last of them. Times the total and not 1: the
    # sum of rounded probabilities is not exactly 1.
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    point = uniform[:, None] * cumulative[:, -1:]
    # Only nan has no place. The clamp keeps the index valid, and the log-prob stays nan for the
    # engine to refuse.
    return torch.searchsorted(cumulative, point, right=True).clamp_max_(logprobs.shape[1] - 1)


def _cut_to_nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """Log-probs [B, V] with -inf outside the nucleus, renormalised inside."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probs = ordered.double().exp()
    # A token belongs to the nucleus if those before it do not reach top_p yet.
    outside = probs.cumsum(-1) - probs >= top_p[:, None]
    cut = torch.empty_like(logprobs).scatter_(1, order, ordered.masked_fill(outside, -torch.inf))
    renormalised = torch.log_softmax(cut, -1)
    return torch.where(top_p[:, None] < 1, renormalised, logprobs)


def _mixed(bits: Keys) -> Keys:
    """The finalizer of splitmix64: every bit of the input changes half of the output."""
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))


def _ranked(logits: Tensor, tokens: Sequence[int], ranking: Ranking) -> list[Scores]:
    """Scores of the tokens whose logits these are."""
    temperature = np.full(len(logits), ranking.temperature, np.float32)
    top_p = np.full(len(logits), ranking.top_p, np.float32)
    logprobs = log_distribution(logits, temperature, top_p)
    targets = torch.tensor(tokens[: len(logits)], device=logits.device)
    own = logprobs.gather(1, targets[:, None])[:, 0].tolist()
    best, where = logprobs.topk(min(ranking.top, logprobs.shape[1]))
    likeliest = zip(where.tolist(), best.tolist(), strict=True)
    return [
        {token: value, **dict(zip(names, values, strict=True))}
        for token, value, (names, values) in zip(tokens, own, likeliest, strict=False)
    ]
