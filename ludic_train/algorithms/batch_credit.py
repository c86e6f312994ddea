"""Credit relative to a baseline: of a batch, a seat in a game, the tokens of an update.

Assigners of the same kind as those in `credit`; statistics are float64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.credit import (
    EQUAL,
    Array,
    CreditAssigner,
    MonteCarloReturn,
    Weights,
    check_statistics,
    compares_groups,
    returns,
    rewards_of,
    spread,
)
from ludic_train.types import Trajectory


@dataclass(frozen=True, slots=True)
class BatchCenteredReturn:
    """The return that follows each step, less the mean over all steps of the other rollouts.

    Williams 1992: a baseline that does not depend on the rollout itself makes the gradient less
    noisy without moving its expectation. A mean with the rollout's own steps would move it by 1 /
    the number of rollouts. A batch of one rollout has no baseline.
    gamma: discount per step, in [0, 1].
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        # The same limits, with an error before the first batch is sampled.
        MonteCarloReturn(self.gamma)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """One weight per step. Raises CreditError for a reward that is not finite."""
        earned = MonteCarloReturn(self.gamma)(trajectories)
        sums = [math.fsum(weights.tolist()) for weights in earned]
        total, steps = math.fsum(sums), sum(map(len, earned))
        return [
            weights - (total - own) / max(steps - len(weights), 1)
            for weights, own in zip(earned, sums, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TokenWhitened:
    """REINFORCE++: the credit A of another assigner, whitened over all sampled tokens.

    (A - mean) / (std + eps), where a step counts once per token it sampled (Hu et al. 2025,
    arXiv:2501.03262). With returns it is REINFORCE++; they reach back over the texts of tools and
    opponents in between. With returns centred in their group it is REINFORCE++-baseline.
    advantage: the assigner of A. ddof: as in `GroupNormalizedReturn`, over the batch.
    """

    advantage: CreditAssigner = field(default_factory=MonteCarloReturn)
    ddof: int = 1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_statistics("TokenWhitened", self.ddof, self.eps)

    @property
    def compares_groups(self) -> bool:
        """True if the credit that it is given does."""
        return compares_groups(self.advantage)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """One weight per step. Raises what `advantage` raises."""
        earned = self.advantage(trajectories)
        # The empty array in front: concatenate() refuses a list of none.
        flat = np.concatenate([np.zeros(0), *earned])
        # Tokens sampled in each step.
        counts = [
            np.bincount(t.completions[:, 0], t.completions[:, 1], len(t.rewards))
            for t in trajectories
        ]
        tokens = np.concatenate([np.zeros(0), *counts])
        if tokens.sum() <= self.ddof or np.ptp(flat[tokens > 0]) <= EQUAL:
            return [np.zeros_like(weights) for weights in earned]
        # By tokens, since the loss counts a step once for each of its tokens.
        mean = float(np.average(flat, weights=tokens))
        variance = float((tokens * (flat - mean) ** 2).sum() / (tokens.sum() - self.ddof))
        return [(weights - mean) / (math.sqrt(variance) + self.eps) for weights in earned]


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """DAPO's soft punishment of long completions, taken from the rewards before `credit` is given.

    0 up to max_tokens - buffer tokens, from there down in a straight line to -factor at
    max_tokens (Yu et al. 2025, arXiv:2503.14476, eq. 13).
    credit: assigner that gets the penalized rewards. max_tokens, buffer: tokens of a completion.
    factor: penalty of the longest completions.

    >>> from ludic_train import GroupNormalizedReturn
    >>> rule = OverlongPenalty(GroupNormalizedReturn(), max_tokens=100, buffer=20)
    >>> rule.penalty(np.array([90, 95, 100, 120])).tolist()
    [-0.5, -0.75, -1.0, -1.0]
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
        # A negative one would reward length.
        if not 0 <= self.factor < math.inf:
            raise ConfigError(f"OverlongPenalty.factor is {self.factor}; it must be 0 or more")

    @property
    def compares_groups(self) -> bool:
        """True if the credit that it is given does."""
        return compares_groups(self.credit)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The credit of the rollouts with the penalties in their steps' rewards."""
        penalized = []
        for trajectory in trajectories:
            rewards, (steps, tokens, *_) = rewards_of(trajectory).copy(), trajectory.completions.T
            # add.at, because several completions may belong to one step.
            np.add.at(rewards, steps, self.penalty(tokens))
            penalized.append(replace(trajectory, rewards=rewards))
        return self.credit(penalized)

    def penalty(self, tokens_C: NDArray[np.int32]) -> Array:
        """Reward of completions of so many tokens, [C]; never positive."""
        over = tokens_C - (self.max_tokens - self.buffer)
        penalties: Array = -self.factor * np.clip(over / self.buffer, 0.0, 1.0)
        return penalties


@dataclass(slots=True)
class SeatBaselineReturn:
    """RAE: the return less a running mean of the returns of the same seat of the same env.

    For self-play, where the seats of a game are not equally good (SPIRAL, arXiv:2506.24119). The
    mean is the one before the batch, so that no rollout is compared with itself; it starts at the
    first batch's own mean.
    decay: share of the mean that a further rollout leaves.
    """

    decay: float = 0.95
    means: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ConfigError(f"SeatBaselineReturn.decay is {self.decay}; it must be in [0, 1)")

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The same weight for all steps. Raises CreditError for a reward that is not finite."""
        earned = returns(trajectories)
        # Text, because the means are kept in JSON, whose keys are nothing else.
        seats = [json.dumps([t.env_id, t.agent]) for t in trajectories]
        by_seat: dict[str, list[float]] = {}
        for seat, reward in zip(seats, earned.tolist(), strict=True):
            by_seat.setdefault(seat, []).append(reward)
        # From before the batch: a mean that includes a return would pull its advantage towards 0.
        before = {s: self.means.get(s, math.fsum(rs) / len(rs)) for s, rs in by_seat.items()}
        for seat, mean in before.items():
            for reward in by_seat[seat]:
                mean = self.decay * mean + (1 - self.decay) * reward
            self.means[seat] = mean
        return spread(earned - np.array([before[seat] for seat in seats]), trajectories)

    def state_dict(self) -> dict[str, Any]:
        """The means, as JSON can hold them."""
        return {"means": dict(self.means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the means of `state`."""
        self.means = {seat: float(mean) for seat, mean in state["means"].items()}
