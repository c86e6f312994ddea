"""Credit relative to what is usual: a batch, a seat in a game, the tokens of an update.

Assigners of the same kind as those in `credit`; statistics are float64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout, Step
from ludic_train.algorithms.credit import (
    CreditAssigner,
    MonteCarloReturn,
    Weights,
    check_statistics,
    returns,
    spread,
)


@dataclass(frozen=True, slots=True)
class BatchCenteredReturn:
    """The return that follows each step, less its mean over all steps of the batch.

    Williams 1992: any constant may be subtracted without moving the expected gradient, and the
    mean makes it less noisy.
    """

    gamma: float = 1.0

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """One weight per step. Raises CreditError for a reward that is not finite."""
        earned = MonteCarloReturn(self.gamma)(rollouts)
        everything = [w for weights in earned for w in weights]
        mean = math.fsum(everything) / max(len(everything), 1)
        return [[w - mean for w in weights] for weights in earned]


@dataclass(frozen=True, slots=True)
class TokenWhitenedReturn:
    """REINFORCE++: the return that follows each step, whitened over all sampled tokens.

    (G - mean) / (std + eps), where a step counts once per token it sampled (Hu et al. 2025,
    arXiv:2501.03262). Returns reach back over what tools and opponents said in between.
    ddof, tolerance: as in `GroupNormalizedReturn`, over the batch.
    """

    gamma: float = 1.0
    ddof: int = 1
    eps: float = 1e-8
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_statistics("TokenWhitenedReturn", self.ddof, self.eps, self.tolerance)

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """One weight per step. Raises CreditError for a reward that is not finite."""
        earned = MonteCarloReturn(self.gamma)(rollouts)
        flat = np.array([w for weights in earned for w in weights], np.float64)
        tokens = np.array([_sampled_tokens(step) for r in rollouts for step in r.steps])
        if tokens.sum() <= self.ddof or np.ptp(flat[tokens > 0]) <= self.tolerance:
            return [[0.0] * len(weights) for weights in earned]
        mean = float(np.average(flat, weights=tokens))
        variance = float((tokens * (flat - mean) ** 2).sum() / (tokens.sum() - self.ddof))
        return [[(w - mean) / (math.sqrt(variance) + self.eps) for w in ws] for ws in earned]


@dataclass(frozen=True, slots=True)
class ExponentialAdvantage:
    """AWR: min(exp(A / beta), max_weight) with A from another assigner, such as a group's.

    Peng et al. 2019, arXiv:1910.00177: imitation of what turned out better than usual. All weights
    are positive; `max_weight` keeps one lucky episode from being all that is learned.
    """

    advantage: CreditAssigner
    beta: float = 1.0
    max_weight: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.beta < math.inf or not 1 <= self.max_weight < math.inf:
            raise ConfigError(
                f"ExponentialAdvantage has beta={self.beta} and max_weight={self.max_weight}; beta "
                "must be positive, max_weight at least 1, and both finite"
            )

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """One weight per step. Raises what `advantage` raises."""
        return [[self._weight(a) for a in advantages] for advantages in self.advantage(rollouts)]

    def _weight(self, advantage: float) -> float:
        # The exponential of a large advantage overflows before it can be cut off.
        return math.exp(min(advantage / self.beta, math.log(self.max_weight)))


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """DAPO's soft punishment of long completions, taken from the rewards before `credit` is given.

    0 up to max_tokens - buffer tokens, from there down in a straight line to -factor at
    max_tokens (Yu et al. 2025, arXiv:2503.14476, eq. 13).
    """

    credit: CreditAssigner
    max_tokens: int
    buffer: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.max_tokens:
            raise ConfigError(
                f"OverlongPenalty has buffer={self.buffer} and max_tokens={self.max_tokens}; the "
                "buffer is the last part of max_tokens, so it must be in [1, max_tokens]"
            )

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The credit of the rollouts with the penalties in their steps' rewards."""
        return self.credit([self._penalized(rollout) for rollout in rollouts])

    def penalty(self, tokens: int) -> float:
        """What a completion of so many tokens costs; never positive."""
        over = tokens - (self.max_tokens - self.buffer)
        return -self.factor * min(max(over / self.buffer, 0.0), 1.0)

    def _penalized(self, rollout: Rollout) -> Rollout:
        steps = [
            replace(step, reward=step.reward + math.fsum(map(self.penalty, _lengths(step))))
            for step in rollout.steps
        ]
        return replace(rollout, steps=tuple(steps))


@dataclass(slots=True)
class SeatBaselineReturn:
    """RAE: the return less a running mean of what the same seat of the same env has earned.

    For self-play, where the seats of a game are not equally good (SPIRAL, arXiv:2506.24119). The
    mean is the one before the batch, so that no rollout is compared with itself; it starts at the
    first batch's own mean.
    decay: how much of the mean a further rollout leaves.
    """

    decay: float = 0.95
    means: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ConfigError(f"SeatBaselineReturn.decay is {self.decay}; it must be in [0, 1)")

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The same weight for all steps. Raises CreditError for a reward that is not finite."""
        earned = returns(rollouts)
        seats = [json.dumps([r.task.env_id, r.agent]) for r in rollouts]
        own: dict[str, list[float]] = {}
        for seat, reward in zip(seats, earned.tolist(), strict=True):
            own.setdefault(seat, []).append(reward)
        before = {s: self.means.get(s, math.fsum(rs) / len(rs)) for s, rs in own.items()}
        self.means |= {seat: self._moved(before[seat], rs) for seat, rs in own.items()}
        return spread(earned - np.array([before[seat] for seat in seats]), rollouts)

    def _moved(self, mean: float, earned: Sequence[float]) -> float:
        for reward in earned:
            mean = self.decay * mean + (1 - self.decay) * reward
        return mean

    def state_dict(self) -> dict[str, Any]:
        """The means, as JSON can hold them."""
        return {"means": dict(self.means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the means of `state`."""
        self.means = {seat: float(mean) for seat, mean in state["means"].items()}


def _lengths(step: Step) -> list[int]:
    return [len(call.completion_ids or ()) for call in step.decision.completions]


def _sampled_tokens(step: Step) -> int:
    return sum(_lengths(step))
