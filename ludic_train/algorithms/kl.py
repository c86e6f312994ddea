"""What keeps a policy close to a reference policy: losses for `CompositeLoss`, and a reward.

All read the attachment REFERENCE; d_t = lp_t - ref_t. The estimator k1 = d is no loss here: as one
its expected gradient is zero; as a reward it is right, see `KLReward`. k3 alone is no loss either:
its gradient is not that of the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import (
    MAX_LOG_RATIO,
    LossMetrics,
    attachment,
    log_ratio,
    scaled_sum,
    token_mean,
)
from ludic_train.errors import MissingAttachment, MissingLogprobs
from ludic_train.types import REFERENCE, LossBatch, SAWItem, TokenLogprobs


@dataclass(frozen=True, slots=True)
class TokenKLLoss:
    """The estimator k2: l_t = coefficient * d_t^2 / 2.

    On policy its expected gradient is that of KL(policy || reference) (Schulman 2020,
    http://joschu.net/blog/kl-approx.html). Raises MissingAttachment.
    """

    coefficient: float = 1e-3

    def __post_init__(self) -> None:
        _check_coefficient("TokenKLLoss", self.coefficient)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `reference_kl`, in nats per token, by k3."""
        difference = _difference(out, batch)
        return scaled_sum(self.coefficient * difference.square() / 2, batch), _kl(difference)


@dataclass(frozen=True, slots=True)
class UnbiasedTokenKLLoss:
    """The estimator k3 under importance sampling: l_t = coefficient * r_t (exp(-d_t) + d_t - 1).

    The gradient goes through the ratio r_t to the sampler too, which makes it that of
    KL(policy || reference) off policy as well (DeepSeek-V3.2, arXiv:2512.02556). Raises
    MissingAttachment and MissingLogprobs.
    """

    coefficient: float = 1e-3

    def __post_init__(self) -> None:
        _check_coefficient("UnbiasedTokenKLLoss", self.coefficient)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `reference_kl`, in nats per token, by k3."""
        difference = _difference(out, batch)
        per_token = torch.exp(log_ratio(out, batch)) * k3(-difference)
        return scaled_sum(self.coefficient * per_token, batch), _kl(difference)


@dataclass(frozen=True, slots=True)
class KLReward:
    """A penalty in the credit: each token's weight less coefficient * (d_t + d_{t+1} + ...).

    The estimator k1 where it is unbiased (Ouyang et al. 2022, arXiv:2203.02155): d_t is that of
    the sampler, and a token answers for all that is sampled after it in its row. For an
    algorithm's `refine`, with REFERENCE among what it attaches:

        replace(make_rloo(), attach=frozenset({REFERENCE}), refine=KLReward(0.01))
    """

    coefficient: float = 1e-3

    def __post_init__(self) -> None:
        _check_coefficient("KLReward", self.coefficient)

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with lower weights. Raises MissingAttachment and MissingLogprobs."""
        return [self._penalized(item) for item in items]

    def _penalized(self, item: SAWItem) -> SAWItem:
        if REFERENCE not in item.attachments:
            known = sorted(item.attachments) or "nothing"
            raise MissingAttachment(f"KLReward reads {REFERENCE!r} and a row has {known} attached")
        if item.behavior_logprobs is None:
            raise MissingLogprobs(
                "KLReward reads the sampler's log-probs and a row has none; sample with a client "
                "that returns them, or use TokenKLLoss"
            )
        difference = (item.behavior_logprobs - item.attachments[REFERENCE]) * item.action_mask
        still_to_come = np.cumsum(difference[::-1].astype(np.float64))[::-1]
        weight = item.weight - self.coefficient * still_to_come * item.action_mask
        return replace(item, weight=weight.astype(np.float32))


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - 1 - x: for samples of q and x = log p - log q, an estimate of KL(q || p) >= 0."""
    return torch.expm1(log_ratio) - log_ratio


def _difference(out: TokenLogprobs, batch: LossBatch) -> Tensor:
    difference = out.logprobs - attachment(batch, REFERENCE)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _kl(difference: Tensor) -> LossMetrics:
    return {"reference_kl": token_mean(k3(-difference))}


def _check_coefficient(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}.coefficient is {value}; it must be positive and finite")
