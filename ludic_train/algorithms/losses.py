"""Losses: one formula per class, always a sum over action tokens.

Every tensor is flat over the N action tokens of a micro-batch. With l_t the formula of a loss,
lp_t the log-prob under the current params, b_t the sampler's, A_t the weight and
r_t = exp(lp_t - b_t), a loss returns sum_t scale_t * l_t, where `scale` already holds the
denominator of the whole update (see `aggregation`). So losses of micro-batches add up to the loss
of the update, however they were cut.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.errors import LossError, MissingAttachment, MissingLogprobs
from ludic_train.metrics import Metric, Metrics
from ludic_train.types import LossBatch, TokenLogprobs, check_shape

# exp(20) = 5e8: far outside any clip range, and inf * 0 = nan cannot come up.
MAX_LOG_RATIO = 20.0

# name -> (sum, count), both scalars without gradient.
LossMetrics = dict[str, tuple[Tensor, Tensor]]
Loss = Callable[[TokenLogprobs, LossBatch], tuple[Tensor, LossMetrics]]
"""From log-probs and facts of the tokens to their scaled sum, and metrics as (sum, count)."""
# name -> the kind of metric and its fields, scalars on any device.
OnDevice = dict[str, tuple[type[Metric], tuple[Tensor, ...]]]


@dataclass(frozen=True, slots=True)
class ReinforceLoss:
    """REINFORCE with an optional truncated importance weight.

    l_t = -A_t * sg(min(r_t, max_ratio)) * lp_t, and -A_t * lp_t without `max_ratio` (Williams
    1992; truncation: Espeholt et al. 2018, arXiv:1802.01561). Raises MissingLogprobs where a
    `max_ratio` is set and the sampler's log-probs are not known.
    max_ratio: largest importance weight; None uses none, for rows of the current params.
    """

    max_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.max_ratio is not None:
            check_positive("ReinforceLoss.max_ratio", self.max_ratio)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `truncated` where ratios are used."""
        if self.max_ratio is None:
            return scaled_sum(-batch.weight * out.logprobs, batch), {}
        # Detached: the weight corrects for the sampler's distribution and is no objective.
        ratio = torch.exp(log_ratio(out, batch)).detach()
        per_token = -batch.weight * ratio.clamp(max=self.max_ratio) * out.logprobs
        return scaled_sum(per_token, batch), {"truncated": token_stat(ratio > self.max_ratio)}


@dataclass(frozen=True, slots=True)
class SequenceReinforceLoss:
    """REINFORCE with one truncated importance weight per rollout.

    l_t = -A_t * sg(min(w, max_ratio)) * lp_t, w the product of r_t over the rollout's action
    tokens. Untruncated, this is the gradient of the expected reward for samples of any policy,
    which ratios per token are not: they leave the prefixes to the sampler. Raises MissingLogprobs,
    and LossError for a rollout that was cut.
    max_ratio: largest weight; its variance grows exponentially with length, so long rollouts of an
        old policy need a small one.
    """

    max_ratio: float = 5.0

    def __post_init__(self) -> None:
        check_positive("SequenceReinforceLoss.max_ratio", self.max_ratio)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `truncated`."""
        # Bounded once more: a sum of logs over a rollout overflows where no single one does.
        ratio = torch.exp(bounded(rollout_sum(log_ratio(out, batch).detach(), batch)))
        per_token = -batch.weight * ratio.clamp(max=self.max_ratio) * out.logprobs
        return scaled_sum(per_token, batch), {"truncated": token_stat(ratio > self.max_ratio)}


@dataclass(frozen=True, slots=True)
class TokenClippedSurrogateLoss:
    """PPO's clipped objective with one ratio per token.

    l_t = max(-A_t r_t, -A_t clip(r_t, 1 - clip_low, 1 + clip_high)) (Schulman et al. 2017,
    arXiv:1707.06347, eq. 7); clip_high > clip_low is DAPO's clip-higher (arXiv:2503.14476).
    `dual_clip` c bounds it for A_t < 0 by -A_t c (Ye et al. 2020, arXiv:1912.09729): a token
    whose ratio has run away upwards stops pushing. Raises MissingLogprobs.
    clip_low, clip_high: distances from a ratio of 1; dual_clip: None switches it off.

    >>> TokenClippedSurrogateLoss().clip(torch.tensor([1.5, 1.5]), torch.tensor([1.0, -1.0]))[0]
    tensor([-1.2000,  1.5000])
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None

    def __post_init__(self) -> None:
        _check_clip(self.clip_low, self.clip_high)
        if self.dual_clip is not None and not self.dual_clip > 1 + self.clip_high:
            raise ConfigError(
                f"dual_clip is {self.dual_clip}; it bounds ratios from far above, so it must be "
                f"more than 1 + clip_high = {1 + self.clip_high}"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `clip_low`, `clip_high`, and `dual_clip` if that is set."""
        ratio = torch.exp(log_ratio(out, batch))
        per_token, metrics = self.clip(ratio, batch.weight)
        return scaled_sum(per_token, batch), metrics

    def clip(self, ratio: Tensor, weight: Tensor) -> tuple[Tensor, LossMetrics]:
        """Formula and metrics for given ratios [N]."""
        per_token, metrics = clipped_surrogate(ratio, weight, self.clip_low, self.clip_high)
        if self.dual_clip is None:
            return per_token, metrics
        # PPO's own clip is one-sided: with A < 0 it leaves ratios above 1 unbounded.
        bound = -weight * self.dual_clip
        # Where the loss is above the bound alone: the bound must not raise what is below it.
        cut = (weight < 0) & (per_token > bound)
        metrics["dual_clip"] = token_stat(cut)
        return torch.where(cut, bound, per_token), metrics


@dataclass(frozen=True, slots=True)
class SequenceClippedSurrogateLoss:
    """GSPO: PPO's clipped objective with one ratio per rollout.

    s = exp(mean over the rollout's action tokens of log r_t), and with sg(s) its value,
    s_t = sg(s) exp(lp_t - sg(lp_t)), l_t = max(-A_t s_t, -A_t clip(s_t, 1 - clip_low,
    1 + clip_high)) (Zheng et al. 2025, arXiv:2507.18071, the token form); meant for the aggregation
    `sequence_mean`. Raises MissingLogprobs, and LossError for a rollout that was cut.
    clip_low, clip_high: distances from a ratio of 1; small, because a mean hardly moves.
    """

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __post_init__(self) -> None:
        _check_clip(self.clip_low, self.clip_high)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `clip_low` and `clip_high`."""
        mean = rollout_mean(log_ratio(out, batch).detach(), batch)
        # The difference is 0: the value is the rollout's ratio, and the gradient flows through
        # each token's own log-prob, so tokens can keep weights of their own.
        ratio = torch.exp(mean + out.logprobs - out.logprobs.detach())
        per_token, metrics = clipped_surrogate(ratio, batch.weight, self.clip_low, self.clip_high)
        return scaled_sum(per_token, batch), metrics


@dataclass(frozen=True, slots=True)
class CISPOLoss:
    """Clips the importance weight instead of the objective, so every token keeps a gradient.

    l_t = -sg(clip(r_t, low, high)) * A_t * lp_t (MiniMax-M1, arXiv:2506.13585). The bounds
    are on the ratio itself; [0, 5] is ScaleRL's (arXiv:2510.13786). Raises MissingLogprobs.
    low, high: bounds of the ratio, with low < 1 < high.
    """

    low: float = 0.0
    high: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.low < 1 < self.high < math.inf:
            raise ConfigError(
                f"CISPOLoss keeps ratios in [{self.low}, {self.high}]; these bound ratios, "
                "so they must hold 0 <= low < 1 < high"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `clip_low` and `clip_high`."""
        # Detached: lp_t alone has the gradient, so a ratio at its bound weakens a token's and does
        # not stop it, unless the bound is 0.
        ratio = torch.exp(log_ratio(out, batch)).detach()
        per_token = -batch.weight * ratio.clamp(self.low, self.high) * out.logprobs
        return scaled_sum(per_token, batch), {
            "clip_low": token_stat(ratio < self.low),
            "clip_high": token_stat(ratio > self.high),
        }


@dataclass(frozen=True, slots=True)
class MaskedCausalLMCrossEntropyLoss:
    """Negative log-likelihood of the action tokens: l_t = -A_t * lp_t.

    With the weight 1 of `ConstantCredit` and `weighted_token_mean` this is supervised fine-tuning;
    a weight of 0 leaves a turn out of it, and of its mean.
    """

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `nll`, nats per action token whose weight is not 0."""
        is_taught = batch.weight != 0
        nll = torch.where(is_taught, -out.logprobs.detach(), 0.0).sum(), is_taught.sum()
        return scaled_sum(-batch.weight * out.logprobs, batch), {"nll": nll}


@dataclass(frozen=True, slots=True)
class EntropyBonus:
    """Rewards spread-out distributions: l_t = -c_v * entropy_t (arXiv:1602.01783).

    c_v is `coefficient` or, with `updates`, falls along a straight line to `final` over so many
    updates, and stays there:

        c_v = coefficient + (final - coefficient) * min(1, v / updates)

    where v counts the updates made before this one. A bonus keeps a policy exploring and so makes
    it worse than it could be; one that ends at 0 leaves the rewards alone to decide at last.
    coefficient: nats of entropy are worth this many units of weight.
    Raises ConfigError for a `final` without `updates`, above `coefficient` or below 0.

    >>> [EntropyBonus(0.01, final=0.0, updates=100).at(version) for version in (0, 50, 200)]
    [0.01, 0.005, 0.0]
    """

    coefficient: float = 0.01
    final: float | None = None
    updates: int | None = None

    def __post_init__(self) -> None:
        check_positive("EntropyBonus.coefficient", self.coefficient)
        if (self.final is None) != (self.updates is None):
            raise ConfigError(
                f"EntropyBonus has final={self.final} and updates={self.updates}; a coefficient "
                "that falls needs both, one that stays neither"
            )
        if self.final is not None and not 0 <= self.final <= self.coefficient:
            raise ConfigError(
                f"EntropyBonus.final is {self.final}; the coefficient falls from "
                f"{self.coefficient}, so it must be in [0, {self.coefficient}]"
            )
        if self.updates is not None and self.updates < 1:
            raise ConfigError(f"EntropyBonus.updates is {self.updates}; it must be at least 1")

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss."""
        return scaled_sum(-self.at(batch.version) * out.entropy, batch), {}

    def at(self, version: int) -> float:
        """The coefficient of the update after `version` others."""
        if self.final is None or self.updates is None:
            return self.coefficient
        # Clamped: a run may be longer than the fall.
        fallen = min(1.0, version / self.updates)
        return self.coefficient + (self.final - self.coefficient) * fallen


@dataclass(frozen=True, slots=True)
class CompositeLoss:
    """The weighted sum of several losses.

        CompositeLoss((clipped, ValueLoss()), weights=(1.0, 0.5), names=("policy", "value"))

    terms: losses on the same tokens.
    weights: a factor per term, beside its own coefficient; None: 1 for each. Metrics of a term are
        not weighted.
    names: a name per term; None: made from its class, as "token_kl" from TokenKLLoss, with a number
        from the second term of a class on. They stand before a metric that several terms report:
        "policy/clip_low". A metric of one term keeps its own name.
    """

    terms: Sequence[Loss]
    weights: Sequence[float] | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise ConfigError("CompositeLoss has no terms; give it at least one loss")
        for name, parts in (("weights", self.weights), ("names", self.names)):
            if parts is not None and len(parts) != len(self.terms):
                raise ConfigError(
                    f"CompositeLoss has {len(self.terms)} terms and {name}={parts!r}; give one per "
                    "term"
                )
        if not all(map(math.isfinite, self.weights or ())):
            raise ConfigError(f"CompositeLoss has weights={self.weights}; they must be finite")
        if len(set(self._names())) < len(self.terms) or not all(self._names()):
            raise ConfigError(
                f"CompositeLoss has names={self.names!r}; they must differ and not be empty"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss and all terms' metrics; one of several terms has their names before it.

        Raises LossError if a name made so belongs to a further metric.
        """
        # On the batch's device and of its type, which a plain 0.0 would not be.
        total = torch.zeros_like(batch.scale[:0]).sum()
        reports: list[LossMetrics] = []
        for term, weight in zip(self.terms, self.weights or [1.0] * len(self.terms), strict=True):
            value, term_metrics = term(out, batch)
            total = total + weight * value
            reports.append(term_metrics)
        counts = Counter(metric for report in reports for metric in report)
        metrics: LossMetrics = {}
        for name, report in zip(self._names(), reports, strict=True):
            for metric, pair in report.items():
                key = metric if counts[metric] == 1 else f"{name}/{metric}"
                # One would overwrite the other and the log would show half of the truth.
                if key in metrics:
                    raise LossError(
                        f"two metrics of a CompositeLoss have the name {key!r}; give its terms "
                        f"other names than {self._names()}"
                    )
                metrics[key] = pair
        return total, metrics

    def _names(self) -> list[str]:
        """The names given, or those made from the classes: "token_kl", "token_kl_2"."""
        if self.names is not None:
            return list(self.names)
        made: list[str] = []
        for term in self.terms:
            # Of a function, or of the class of any other callable; words joined by "_".
            name = term.__name__ if isinstance(term, FunctionType) else type(term).__name__
            name = name.removesuffix("Loss") or "loss"
            made.append(
                re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
            )
        earlier = [made[:i].count(name) for i, name in enumerate(made)]
        return [f"{name}_{n + 1}" if n else name for name, n in zip(made, earlier, strict=True)]


def scaled_sum(per_token: Tensor, batch: LossBatch) -> Tensor:
    """The contribution of these tokens to the update's loss: sum(scale * per_token)."""
    check_shape("the forward pass", per_token, batch.scale)
    return (batch.scale * per_token).sum()


def token_stat(per_token: Tensor) -> tuple[Tensor, Tensor]:
    """(sum, count) over tokens, for metrics; bools count as 0 and 1."""
    values = per_token.detach()
    total = values.sum() if values.is_floating_point() else values.sum().float()
    return total, torch.full_like(total, values.numel())


def log_ratio(out: TokenLogprobs, batch: LossBatch) -> Tensor:
    """Log of the ratio new / sampler, [N], within +-20. Raises MissingLogprobs."""
    if batch.behavior_logprobs is None:
        raise MissingLogprobs(
            "this loss compares with the sampler's log-probs and the batch has none; sample with "
            "a client that returns them, or use ReinforceLoss()"
        )
    return bounded(out.logprobs - batch.behavior_logprobs)


def bounded(log_ratio: Tensor) -> Tensor:
    """Logs of ratios within +-20, where their exponentials stay finite."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def k3(log_ratio: Tensor) -> Tensor:
    """exp(x) - 1 - x: for samples of q and x = log p - log q, an estimate of KL(q || p) >= 0."""
    # expm1, because exp(x) - 1 loses all digits near 0, where a policy usually is.
    return torch.expm1(log_ratio) - log_ratio


def rollout_mean(per_token: Tensor, batch: LossBatch) -> Tensor:
    """At each token the mean over the action tokens of its rollout, [N]; raises LossError."""
    sums = rollout_sum(per_token, batch)
    return sums / rollout_sum(torch.ones_like(per_token), batch)


def rollout_sum(per_token: Tensor, batch: LossBatch) -> Tensor:
    """At each token the sum over the action tokens of its rollout, [N].

    Raises LossError where some of these are in another micro-batch.
    """
    if not batch.whole:
        raise LossError(
            "a rollout has more tokens than a micro-batch may hold, and this loss compares whole "
            "rollouts: raise micro_token_budget, use a context that keeps the dialog (fewer rows), "
            "or a loss with one ratio per token"
        )
    # A loop over rollouts would wait for the device once per rollout.
    sums = per_token.new_zeros(batch.num_rollouts).index_add(0, batch.rollout, per_token)
    return sums[batch.rollout]


def attachment(batch: LossBatch, name: str) -> Tensor:
    """The attached [N] tensor of that name. Raises MissingAttachment."""
    if name not in batch.attachments:
        names = ", ".join(sorted(batch.attachments)) or "nothing"
        raise MissingAttachment(f"this loss reads {name!r} and the batch has {names} attached")
    return batch.attachments[name]


def clipped_surrogate(
    ratio: Tensor, weight: Tensor, low: float, high: float
) -> tuple[Tensor, LossMetrics]:
    """PPO's pessimistic bound [N] for any kind of ratio [N], and how often it cut which side."""
    # The larger loss of the two: the clip may take away a gain and never hide a loss.
    per_token = torch.maximum(-weight * ratio, -weight * ratio.clamp(1 - low, 1 + high))
    # Counted where the clip stops the gradient: against the direction of A it changes nothing.
    return per_token, {
        "clip_low": token_stat((weight < 0) & (ratio < 1 - low)),
        "clip_high": token_stat((weight > 0) & (ratio > 1 + high)),
    }


def fetch_metrics(parts: Sequence[OnDevice]) -> list[Metrics]:
    """The metrics of each part with plain numbers; all of them leave the device together."""
    scalars = [number for part in parts for _, of in part.values() for number in of]
    if not scalars:
        return [{} for _ in parts]
    device = scalars[0].device
    # Each transfer waits for the device to finish, so one per number would serialise the update.
    plain = iter(torch.stack([s.detach().double().to(device) for s in scalars]).tolist())
    return [
        {name: kind(*(next(plain) for _ in of)) for name, (kind, of) in part.items()}
        for part in parts
    ]


def check_positive(name: str, value: float) -> None:
    """Raise ConfigError for a setting that is not positive and finite."""
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value}; it must be positive and finite")


def _check_clip(low: float, high: float) -> None:
    # A clip_low of 1 is allowed: no ratio is below 0, so it switches the lower side off.
    if not 0 < low <= 1 or not 0 < high < math.inf:
        raise ConfigError(
            f"clip_low is {low} and clip_high is {high}; ratios are kept in "
            "[1 - clip_low, 1 + clip_high], so clip_low must be in (0, 1] and clip_high positive"
        )
