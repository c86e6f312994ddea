"""From rewards to weights: how much each step of a rollout counts in the update.

A credit assigner maps rollouts to one weight per step of each, `weights[i][t]`. It sees whole
groups, before anything is cut into batches; statistics are float64. Members of a group are
rollouts with the same `task.group` and agent, since two players of one match are no comparison
for each other. What became of lost members (failed episodes) is up to the source: statistics are
those of the members that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout
from ludic_train.errors import CreditError

Weights = list[list[float]]
CreditAssigner = Callable[[Sequence[Rollout]], Weights]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MonteCarloReturn:
    """The discounted return that follows each step: w_t = r_t + gamma w_{t+1}."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"MonteCarloReturn.gamma is {self.gamma}; it must be in [0, 1]")

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """One return-to-go per step. Raises CreditError for a reward that is not finite."""
        return [self._returns(rewards) for rewards in map(_rewards, rollouts)]

    def _returns(self, rewards: Sequence[float]) -> list[float]:
        backwards = accumulate(reversed(rewards), lambda later, r: r + self.gamma * later)
        return list(backwards)[::-1]


@dataclass(frozen=True, slots=True)
class EpisodicReturn:
    """The sum of a rollout's rewards, at each of its steps."""

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The same weight for all steps. Raises CreditError for a reward that is not finite."""
        return spread(returns(rollouts), rollouts)


@dataclass(frozen=True, slots=True)
class PerStepReward:
    """Each step's own reward, for bandits in a row."""

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The rewards. Raises CreditError for one that is not finite."""
        return [_rewards(rollout) for rollout in rollouts]


@dataclass(frozen=True, slots=True)
class ConstantCredit:
    """One weight for every step, whatever it earned: imitation."""

    value: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ConfigError(f"ConstantCredit.value is {self.value}; it must be finite")

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """`value` per step."""
        return [[self.value] * len(rollout.steps) for rollout in rollouts]


@dataclass(frozen=True, slots=True)
class GroupNormalizedReturn:
    """The return R relative to its group: (R - mean) / (std + eps), at each step.

    Shao et al. 2024, arXiv:2402.03300. divide_by_std False leaves R - mean, which does not favour
    prompts of little spread (Dr. GRPO, arXiv:2503.20783).
    ddof: 1 divides the squares by n - 1, 0 by n.
    tolerance: a group whose returns span no more than this gets exactly 0.0; rounding alone would
        otherwise be divided by its own size.
    """

    divide_by_std: bool = True
    ddof: int = 1
    eps: float = 1e-6
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_statistics("GroupNormalizedReturn", self.ddof, self.eps, self.tolerance)

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        earned = returns(rollouts)
        advantage = np.zeros_like(earned)
        for members in groups(rollouts):
            advantage[members] = self._normalized(earned[members])
        return spread(advantage, rollouts)

    def _normalized(self, earned: Array) -> Array:
        centered = center(earned, self.tolerance)
        if not self.divide_by_std:
            return centered
        normalized: Array = centered / (earned.std(ddof=self.ddof) + self.eps)
        return normalized


@dataclass(frozen=True, slots=True)
class HybridNormalizedReturn:
    """The return centred in its group, divided by the batch's std of these: ScaleRL.

    (R - mean_group) / (std_batch(R - mean_group) + eps) at each step (arXiv:2510.13786).
    ddof, tolerance: as in `GroupNormalizedReturn`.
    """

    ddof: int = 0
    eps: float = 1e-8
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_statistics("HybridNormalizedReturn", self.ddof, self.eps, self.tolerance)

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        earned = returns(rollouts)
        centered = np.zeros_like(earned)
        for members in groups(rollouts):
            centered[members] = center(earned[members], self.tolerance)
        # Without any spread all are exactly 0, and an eps of 0 must not make that nan.
        if not centered.any():
            return spread(centered, rollouts)
        return spread(centered / (centered.std(ddof=self.ddof) + self.eps), rollouts)


@dataclass(frozen=True, slots=True)
class LeaveOneOutReturn:
    """RLOO: the return less the mean of the OTHER members of the group, at each step.

    Ahmadian et al. 2024, arXiv:2402.14740; equals n / (n - 1) (R - mean).
    tolerance: as in `GroupNormalizedReturn`.
    """

    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        check_statistics("LeaveOneOutReturn", 0, 0.0, self.tolerance)

    def __call__(self, rollouts: Sequence[Rollout]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        earned = returns(rollouts)
        advantage = np.zeros_like(earned)
        for members in groups(rollouts):
            n = len(members)
            advantage[members] = center(earned[members], self.tolerance) * (n / (n - 1))
        return spread(advantage, rollouts)


def returns(rollouts: Sequence[Rollout]) -> Array:
    """The sum of rewards of each rollout. Raises CreditError for one that is not finite."""
    return np.array([math.fsum(_rewards(rollout)) for rollout in rollouts], np.float64)


def spread(advantage: Array, rollouts: Sequence[Rollout]) -> Weights:
    """One number per rollout, at each of its steps."""
    return [[float(a)] * len(r.steps) for a, r in zip(advantage, rollouts, strict=True)]


def groups(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Indices of the members of each group. Raises CreditError where one cannot be compared."""
    members: dict[tuple[str, str], list[int]] = {}
    for i, rollout in enumerate(rollouts):
        if not rollout.task.group:
            raise CreditError(
                f"rollout {i} of {rollout.task.env_id} has no group; make tasks with "
                "`grouped(tasks, size)`, give a source a group_size of 2 or more, or use "
                "MonteCarloReturn"
            )
        members.setdefault((rollout.task.group, rollout.agent), []).append(i)
    for (group, agent), indices in members.items():
        if len(indices) < 2:
            raise CreditError(
                f"group {group!r} has a single rollout of {agent!r}, which has nothing to be "
                "compared with; did the others fail? drop_zero_variance_groups() drops such groups"
            )
    return list(members.values())


def center(earned: Array, tolerance: float) -> Array:
    """`earned` less its mean; exactly 0.0 where it spans no more than `tolerance`."""
    if np.ptp(earned) <= tolerance:
        return np.zeros_like(earned)
    centered: Array = earned - earned.mean()
    return centered


def check_statistics(name: str, ddof: int, eps: float, tolerance: float) -> None:
    """Raises ConfigError for values that no statistic can be computed with."""
    if ddof not in (0, 1):
        raise ConfigError(f"{name}.ddof is {ddof}; it must be 0 or 1")
    if not 0 <= eps < math.inf or not 0 <= tolerance < math.inf:
        raise ConfigError(
            f"{name} has eps={eps} and tolerance={tolerance}; both must be finite and >= 0"
        )


def _rewards(rollout: Rollout) -> list[float]:
    rewards = [float(step.reward) for step in rollout.steps]
    if not all(map(math.isfinite, rewards)):
        raise CreditError(
            f"a rollout of {rollout.task.env_id} in group {rollout.task.group!r} has the rewards "
            f"{rewards}; all must be finite"
        )
    return rewards
