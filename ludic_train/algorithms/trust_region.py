"""Losses that keep an update close to the sampler by other means than PPO's clip.

Same kind and notation as in `losses`: sums over action tokens of scale_t * l_t, with
r_t = exp(lp_t - b_t), the ratio to the sampler. All raise MissingLogprobs without its log-probs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import (
    LossMetrics,
    check_positive,
    log_ratio,
    rollout_mean,
    scaled_sum,
    token_stat,
)
from ludic_train.types import LossBatch, TokenLogprobs


@dataclass(frozen=True, slots=True)
class DPPOLoss:
    """Leaves out tokens whose probability has moved too far in the direction of their weight.

    l_t = -A_t M_t sg(min(r_t, max_ratio)) lp_t, where M_t is 0 for A_t > 0 and
    exp(lp_t) - exp(b_t) > high, or A_t < 0 and exp(b_t) - exp(lp_t) > low (divergence PPO with the
    binary total variation, Qi et al. 2026, arXiv:2602.04879). Rare tokens may move by any ratio,
    which PPO's clip forbids; frequent ones by no more than a probability.
    low, high: largest moves, in (0, 1]. max_ratio: largest importance weight, at least 1.

    A rare token may triple; a frequent one that moved from 0.5 to 0.9 is left out:

    >>> one = torch.ones(2)
    >>> batch = LossBatch(
    ...     weight=one,
    ...     scale=one,
    ...     rollout=torch.tensor([0, 0]),
    ...     num_rollouts=1,
    ...     behavior_logprobs=torch.tensor([0.01, 0.5]).log(),
    ... )
    >>> out = TokenLogprobs(logprobs=torch.tensor([0.03, 0.9]).log(), entropy=one)
    >>> DPPOLoss()(out, batch)[1]
    {'masked': (tensor(1.), tensor(2.))}
    """

    low: float = 0.2
    high: float = 0.2
    max_ratio: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 or not 0 < self.high <= 1 or not self.max_ratio >= 1:
            raise ConfigError(
                f"DPPOLoss has low={self.low}, high={self.high} and max_ratio={self.max_ratio}; "
                "the first two bound moves of a probability, so they are in (0, 1], and the last "
                "is at least 1"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `masked`, the share of tokens left out."""
        # The ratio is a weight and the move decides on a mask: the gradient is that of lp_t alone.
        log = log_ratio(out, batch).detach()
        probability = out.logprobs.detach().exp()
        # The sampler's probability as exp(lp_t - log r_t).
        moved = probability - probability * torch.exp(-log)
        far = ((batch.weight > 0) & (moved > self.high)) | (
            (batch.weight < 0) & (-moved > self.low)
        )
        factor = torch.exp(log).clamp(max=self.max_ratio) * ~far
        per_token = -batch.weight * factor * out.logprobs
        return scaled_sum(per_token, batch), {"masked": token_stat(far)}


@dataclass(frozen=True, slots=True)
class SAPOLoss:
    """A soft gate in place of the clip: l_t = -A_t (4 / tau) sigmoid(tau (r_t - 1)).

    Its slope is 1 at r_t = 1 and falls smoothly on both sides (Gao et al. 2025, arXiv:2511.20347).
    tau_positive, tau_negative: steepness for A_t > 0 and for all others; the second is larger,
    since negative weights spread over the whole vocabulary.

    Share of the gradient that is left where the ratio is 1, and where it is 3:

    >>> one = torch.ones(1)
    >>> batch = LossBatch(
    ...     weight=one,
    ...     scale=one,
    ...     rollout=torch.tensor([0]),
    ...     num_rollouts=1,
    ...     behavior_logprobs=torch.tensor([0.2]).log(),
    ... )
    >>> for probability in (0.2, 0.6):
    ...     out = TokenLogprobs(logprobs=torch.tensor([probability]).log(), entropy=one)
    ...     total, count = SAPOLoss()(out, batch)[1]["gate"]
    ...     print(round((total / count).item(), 3))
    1.0
    0.42
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05

    def __post_init__(self) -> None:
        check_positive("SAPOLoss.tau_positive", self.tau_positive)
        check_positive("SAPOLoss.tau_negative", self.tau_negative)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `gate`, the mean share of the gradient that is left."""
        ratio = torch.exp(log_ratio(out, batch))
        positive = torch.full_like(ratio, self.tau_positive)
        tau = torch.where(batch.weight > 0, positive, self.tau_negative)
        # A sigmoid's slope at 0 is 1/4: by 4 / tau the gradient is the policy gradient at r_t = 1.
        opened = torch.sigmoid(tau * (ratio - 1))
        per_token = -batch.weight * opened * (4 / tau)
        return scaled_sum(per_token, batch), {"gate": token_stat(4 * opened * (1 - opened))}


@dataclass(frozen=True, slots=True)
class GMPOLoss:
    """GMPO: one ratio per rollout, the geometric mean of its tokens' clipped ratios.

    c_t = log r_t, but not past clip for A_t > 0 and not past -clip for A_t < 0. With s the value of
    exp(mean over the rollout's action tokens of c_t), l_t = -A_t sg(s) exp(c_t - sg(c_t)) (Zhao et
    al. 2025, arXiv:2507.20673, as a sum over tokens, so that each may have its own weight); meant
    for the aggregation `sequence_mean`. Also raises LossError for a rollout that was cut.
    clip: largest log of a ratio that is rewarded; wider than PPO's, because a mean moves less.

    Logs of ratios 1 and 0, the first clipped to 0.4: the rollout's ratio is exp(0.2) = 1.221.

    >>> one = torch.ones(2)
    >>> batch = LossBatch(
    ...     weight=one,
    ...     scale=one / 2,
    ...     rollout=torch.tensor([0, 0]),
    ...     num_rollouts=1,
    ...     behavior_logprobs=torch.tensor([-2.0, -2.0]),
    ... )
    >>> GMPOLoss()(TokenLogprobs(logprobs=torch.tensor([-1.0, -2.0]), entropy=one), batch)[0]
    tensor(-1.2214)
    """

    clip: float = 0.4

    def __post_init__(self) -> None:
        check_positive("GMPOLoss.clip", self.clip)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `clip_low` and `clip_high`."""
        log = log_ratio(out, batch)
        high, low = (batch.weight > 0) & (log > self.clip), (batch.weight < 0) & (log < -self.clip)
        kept = torch.where(high, self.clip, torch.where(low, -self.clip, log))
        # The value is the rollout's, and the gradient is that of each token's own ratio.
        ratio = torch.exp(rollout_mean(kept.detach(), batch) + kept - kept.detach())
        metrics = {"clip_low": token_stat(low), "clip_high": token_stat(high)}
        return scaled_sum(-batch.weight * ratio, batch), metrics
