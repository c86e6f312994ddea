"""Log-probs of tokens that are already there, and of the likeliest in their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ludic_train.inference.sampling import log_distribution

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Nats by token id: the token itself first, then the likeliest ones, likeliest first.
Scores = Mapping[int, float]
# Logits of more rows at a time would take gigabytes with a large vocabulary.
ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How tokens are scored: top is how many of the likeliest are told; the rest as in Sampling."""

    top: int = 0
    temperature: float = 1.0
    top_p: float = 1.0


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


def _ranked(logits: torch.Tensor, tokens: Sequence[int], ranking: Ranking) -> list[Scores]:
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
