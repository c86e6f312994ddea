"""Terms that keep a policy close to a reference policy, as losses to add with `CompositeLoss`.

Both read the attachment REFERENCE; d_t = lp_t - ref_t. The estimator k1 = d is not here: as a loss
its expected gradient is zero. k3 alone is not either: its gradient is not that of the divergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.losses import (
    MAX_LOG_RATIO,
    REFERENCE,
    LossBatch,
    LossMetrics,
    TokenLogprobs,
    attachment,
    log_ratio,
    scaled_sum,
    token_mean,
)


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
