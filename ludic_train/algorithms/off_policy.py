"""Mismatch of the sampler's policy and the one being updated: measured, and corrected.

Sampler and trainer compute the same log-probs with other kernels, and the sampler may hold older
params. `mismatch` measures that on every batch. `Corrected` weighs tokens by
w_t = exp(proximal_t - sampler_t), the proximal policy being the params that began the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import (
    Loss,
    LossMetrics,
    OnDevice,
    attachment,
    bounded,
    k3,
    log_ratio,
    rollout_mean,
    rollout_sum,
    token_stat,
)
from ludic_train.errors import SamplerMismatch
from ludic_train.metrics import Metrics, Peak, SampleSize, Stat, Total
from ludic_train.types import PROXIMAL, LossBatch, TokenLogprobs

KL_AT_LAG_0 = "mismatch/kl_at_lag_0"
AT_LAG = "tokens/at_lag_"
# The bins of the histogram of lags: from, and up to but without.
LAGS = {"0": (0, 1), "1": (1, 2), "2-3": (2, 4), "4-7": (4, 8), "8+": (8, math.inf)}

# Log of the ratio proximal / sampler, [N] -> the factor of each token's loss, [N].
Correction = Callable[[Tensor, LossBatch], Tensor]


@dataclass(frozen=True, slots=True)
class TokenTruncation:
    """TIS: min(w_t, high); AReaL (arXiv:2505.24298) has 5.

    high: largest weight of a token, above 1.
    """

    high: float = 2.0

    def __post_init__(self) -> None:
        _check_bounds("TokenTruncation", 0.0, self.high)

    def __call__(self, log_weight: Tensor, batch: LossBatch) -> Tensor:
        """The factors."""
        return torch.exp(log_weight).clamp(max=self.high)


@dataclass(frozen=True, slots=True)
class TokenMask:
    """IcePop, or token MIS: w_t where low <= w_t <= high, 0 elsewhere (arXiv:2510.18855).

    low, high: range of weights that are kept, with low < 1 < high.
    """

    low: float = 0.5
    high: float = 2.0

    def __post_init__(self) -> None:
        _check_bounds("TokenMask", self.low, self.high)

    def __call__(self, log_weight: Tensor, batch: LossBatch) -> Tensor:
        """The factors."""
        # Dropped and not truncated: a token this far off comes from another kernel's rounding or
        # another policy, and says nothing about this one.
        weight = torch.exp(log_weight)
        return weight * ((weight >= self.low) & (weight <= self.high))


@dataclass(frozen=True, slots=True)
class SequenceTruncation:
    """Sequence TIS: min(product of a rollout's w_t, high), at all its tokens.

    high: largest weight of a rollout, above 1.
    """

    high: float = 2.0

    def __post_init__(self) -> None:
        _check_bounds("SequenceTruncation", 0.0, self.high)

    def __call__(self, log_weight: Tensor, batch: LossBatch) -> Tensor:
        """The factors."""
        return _rollout_product(log_weight, batch).clamp(max=self.high)


@dataclass(frozen=True, slots=True)
class SequenceMask:
    """Sequence MIS: the product of a rollout's w_t where it is at most `high`, else 0.

    high: largest weight that is kept, above 1.
    """

    high: float = 3.0

    def __post_init__(self) -> None:
        _check_bounds("SequenceMask", 0.0, self.high)

    def __call__(self, log_weight: Tensor, batch: LossBatch) -> Tensor:
        """The factors."""
        product = _rollout_product(log_weight, batch)
        return product * (product <= self.high)


@dataclass(frozen=True, slots=True)
class GeometricMask:
    """1 for rollouts whose geometric mean of w_t is in [low, high], 0 for the others.

    low, high: range of means that are kept; narrow, because a mean hardly moves.
    """

    low: float = 0.99
    high: float = 1.01

    def __post_init__(self) -> None:
        _check_bounds("GeometricMask", self.low, self.high)

    def __call__(self, log_weight: Tensor, batch: LossBatch) -> Tensor:
        """The factors."""
        mean = torch.exp(rollout_mean(log_weight, batch))
        return ((mean >= self.low) & (mean <= self.high)).to(log_weight.dtype)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A loss whose ratios are to the proximal policy, each token weighted by a correction.

    Around TokenClippedSurrogateLoss this is decoupled PPO (Hilton et al. 2021, arXiv:2110.00641).
    Reads the attachment PROXIMAL; raises MissingAttachment and MissingLogprobs. Terms that do not
    depend on the weight, such as an entropy bonus, belong outside.
    loss: any loss of ratios. correction: the factors of its tokens, such as TokenTruncation().
    """

    loss: Loss
    correction: Correction

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; `correction` and the share of tokens `masked`, and the loss's own."""
        proximal = attachment(batch, PROXIMAL)
        log_weight = log_ratio(TokenLogprobs(proximal, out.entropy), batch)
        factor = self.correction(log_weight, batch)
        # Into the scale, so that any loss can be corrected without knowing of it; and its ratios
        # start from the proximal policy, so that the clip bounds this update's own step alone.
        corrected = replace(batch, scale=batch.scale * factor, behavior_logprobs=proximal)
        value, metrics = self.loss(out, corrected)
        weight_metrics = {"correction": token_stat(factor), "masked": token_stat(factor == 0)}
        return value, metrics | weight_metrics


def without_empty_lags(metrics: Metrics) -> Metrics:
    """The metrics without the bins of lags that no token is in."""
    empty = {name for name, m in metrics.items() if name.startswith(AT_LAG) and m == Total(0.0)}
    return {name: metric for name, metric in metrics.items() if name not in empty}


def mismatch(out: TokenLogprobs, batch: LossBatch) -> OnDevice:
    """The distance of the current params to the sampler, on the tokens it sampled.

    mismatch/kl: KL(sampler || current) in nats per token, by k3; mismatch/kl_at_lag_0: the same on
    tokens whose version is the current one, where anything but rounding means that the sampler does
    not have these params; mismatch/ratio and mismatch/ratio_max: current / sampler;
    mismatch/ess: effective sample size of these ratios; lag, lag_max: in updates;
    tokens/at_lag_N: how many tokens are N updates old, N such as 0 or 4-7.
    Empty without the sampler's log-probs; the names on lag are left out where it is unknown.
    """
    if batch.behavior_logprobs is None or not len(batch.rollout):
        return {}
    # float64: sums over 100 000 tokens of squared ratios lose digits in float32.
    log = log_ratio(out, batch).detach().double()
    ratio, divergence = torch.exp(log), k3(log)
    count = torch.tensor(len(log))
    metrics: OnDevice = {
        "mismatch/kl": (Stat, (divergence.sum(), count)),
        "mismatch/ratio": (Stat, (ratio.sum(), count)),
        "mismatch/ratio_max": (Peak, (ratio.max(),)),
        "mismatch/ess": (SampleSize, (ratio.sum(), ratio.square().sum(), count)),
    }
    if batch.lag is not None:
        fresh, lag = batch.lag == 0, batch.lag.double()
        bins = {name: (lag >= low) & (lag < high) for name, (low, high) in LAGS.items()}
        metrics |= {
            # Older tokens are left out of the count too, or their zeros would lower the mean.
            KL_AT_LAG_0: (Stat, ((divergence * fresh).sum(), fresh.sum())),
            "lag": (Stat, (lag.sum(), count)),
            "lag_max": (Peak, (lag.max(),)),
            **{AT_LAG + name: (Total, (inside.sum(),)) for name, inside in bins.items()},
        }
    return metrics


def check_sampler(metrics: Metrics, most: float | None, version: int) -> None:
    """Raise SamplerMismatch where the KL at lag 0 exceeds `most` nats per token; None never."""
    metric = metrics.get(KL_AT_LAG_0)
    if most is None or not isinstance(metric, Stat) or not metric.count:
        return
    # A comparison with nan is False, and a single nan must not switch this off.
    if not metric.value <= most:
        raise SamplerMismatch(
            f"tokens sampled by version {version}, as the sampler reports, are {metric.value:.3g} "
            f"nats from it, more than max_kl_at_lag_0={most}; was the new version loaded, are "
            "temperature and log-prob mode those of the sampler, and do both compute in one type "
            "(--dtype of `ludic train` and `ludic serve`)?"
        )


def _rollout_product(log_weight: Tensor, batch: LossBatch) -> Tensor:
    """At each token the product of w_t over its rollout, [N]. Raises LossError."""
    # Bounded once more: a sum of logs over a rollout overflows where no single one does.
    return torch.exp(bounded(rollout_sum(log_weight, batch)))


def _check_bounds(name: str, low: float, high: float) -> None:
    if not 0 <= low < 1 < high < math.inf:
        raise ConfigError(
            f"{name} keeps weights in [{low}, {high}]; a weight is 1 where sampler and trainer "
            "agree, so the bounds must hold 0 <= low < 1 < high"
        )
