"""Credit: weights of the steps of rollouts in an update, computed from their rewards.

A credit assigner maps trajectories to one weight per step of each, `weights[i][t]`. It sees the
whole batch; statistics are float64. Members of a group are trajectories with the same `group` and
agent, since two players of one match are no comparison for each other. Members that were lost
(failed episodes) are the source's affair: statistics are over the members that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import ConfigError
from ludic_train.errors import CreditError
from ludic_train.types import Trajectory

Array = NDArray[np.float64]
# Returns that span no more than this are equal: differences of rounding alone, divided by their own
# size, would become advantages of 1.
EQUAL = 1e-9
# One float64 [S] per trajectory of S steps.
Weights = list[Array]
CreditAssigner = Callable[[Sequence[Trajectory]], Weights]
"""From the trajectories of a batch to a float64 array [S] each: a weight for every step."""


@runtime_checkable
class Stateful(Protocol):
    """Credit assigner that keeps statistics from batch to batch."""

    def state_dict(self) -> dict[str, Any]:
        """The statistics, as JSON can hold them."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the statistics of `state`."""


def compares_groups(credit: CreditAssigner) -> bool:
    """True if the credit of a rollout is relative to the others of its group.

    Assigners say so by an attribute `compares_groups`; those without it do not.
    """
    return bool(getattr(credit, "compares_groups", False))


@dataclass(frozen=True, slots=True)
class MonteCarloReturn:
    """The discounted return that follows each step: w_t = r_t + gamma w_{t+1}.

    gamma: discount per step, in [0, 1].

    >>> rest = {"rows": (), "parsed": np.ones(3, bool), "completions": np.zeros((0, 3), np.int32)}
    >>> rollout = Trajectory(rewards=np.array([0.0, 0.0, 1.0]), env_id="mine/Maze-v0", **rest)
    >>> MonteCarloReturn(gamma=0.5)([rollout])[0].tolist()
    [0.25, 0.5, 1.0]
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"MonteCarloReturn.gamma is {self.gamma}; it must be in [0, 1]")

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """One return-to-go per step. Raises CreditError for a reward that is not finite."""
        weights = []
        for trajectory in trajectories:
            # From the end, so that each return takes one step: w_t from w_{t+1}.
            backwards = reversed(rewards_of(trajectory).tolist())
            returns = list(accumulate(backwards, lambda later, r: r + self.gamma * later))
            weights.append(np.array(returns[::-1], np.float64))
        return weights


@dataclass(frozen=True, slots=True)
class EpisodicReturn:
    """The sum of a rollout's rewards, at each of its steps."""

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The same weight for all steps. Raises CreditError for a reward that is not finite."""
        return spread(returns(trajectories), trajectories)


@dataclass(frozen=True, slots=True)
class PerStepReward:
    """Each step's own reward, for bandits in a row."""

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The rewards. Raises CreditError for one that is not finite."""
        return [rewards_of(trajectory) for trajectory in trajectories]


@dataclass(frozen=True, slots=True)
class ConstantCredit:
    """One weight for every step, whatever it earned: imitation.

    value: the weight; negative ones unlearn.
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ConfigError(f"ConstantCredit.value is {self.value}; it must be finite")

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """`value` per step."""
        return [np.full(len(t.rewards), self.value) for t in trajectories]


@dataclass(frozen=True, slots=True)
class GroupNormalizedReturn:
    """The return R relative to its group: (R - mean) / (std + eps), at each step.

    Shao et al. 2024, arXiv:2402.03300. divide_by_std False leaves R - mean, which does not favour
    prompts of little spread (Dr. GRPO, arXiv:2503.20783).
    ddof: 1 divides the squares by n - 1, 0 by n.

    >>> success = np.array([1.0, 0.0, 0.0, 0.0])
    >>> GroupNormalizedReturn().normalized(success).round(3).tolist()
    [1.5, -0.5, -0.5, -0.5]
    >>> GroupNormalizedReturn(divide_by_std=False).normalized(success).tolist()
    [0.75, -0.25, -0.25, -0.25]
    """

    compares_groups: ClassVar[bool] = True

    divide_by_std: bool = True
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_statistics("GroupNormalizedReturn", self.ddof, self.eps)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        return spread(by_group(trajectories, self.normalized), trajectories)

    def normalized(self, earned: Array) -> Array:
        """Advantages of the returns of one group; exactly 0 where all are equal."""
        centered = center(earned)
        # An eps of 0 must not make 0 nan.
        if not self.divide_by_std or not centered.any():
            return centered
        normalized: Array = centered / (earned.std(ddof=self.ddof) + self.eps)
        return normalized


@dataclass(frozen=True, slots=True)
class HybridNormalizedReturn:
    """The return centred in its group, divided by the batch's std of these: ScaleRL.

    (R - mean_group) / (std_batch(R - mean_group) + eps) at each step (arXiv:2510.13786).
    ddof: as in `GroupNormalizedReturn`.
    """

    compares_groups: ClassVar[bool] = True

    ddof: int = 0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_statistics("HybridNormalizedReturn", self.ddof, self.eps)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        centered = by_group(trajectories, center)
        # Without any spread all are exactly 0, and an eps of 0 must not make that nan.
        if not centered.any():
            return spread(centered, trajectories)
        return spread(centered / (centered.std(ddof=self.ddof) + self.eps), trajectories)


@dataclass(frozen=True, slots=True)
class LeaveOneOutReturn:
    """RLOO: the return less the mean of the OTHER members of the group, at each step.

    Ahmadian et al. 2024, arXiv:2402.14740; equals n / (n - 1) (R - mean).
    """

    compares_groups: ClassVar[bool] = True

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """The same weight for all steps. Raises CreditError for a group of fewer than two."""
        # n / (n - 1) turns the distance to the mean of all into that to the mean of the others.
        advantage = by_group(trajectories, lambda r: center(r) * (len(r) / (len(r) - 1)))
        return spread(advantage, trajectories)


def by_group(trajectories: Sequence[Trajectory], advantage: Callable[[Array], Array]) -> Array:
    """`advantage` of the returns of each group, one number per trajectory, float64.

    Raises CreditError for a return that is not finite, and a rollout that cannot be compared.
    """
    advantages = returns(trajectories)
    for members in groups(trajectories):
        # In place: each index is in one group, so no group reads what another has written.
        advantages[members] = advantage(advantages[members])
    return advantages


def returns(trajectories: Sequence[Trajectory]) -> Array:
    """Sum of rewards of each trajectory. Raises CreditError for one that is not finite."""
    # fsum, so that the order of rewards that cancel leaves no difference between equal returns.
    return np.array([math.fsum(rewards_of(t).tolist()) for t in trajectories], np.float64)


def spread(advantage: Array, trajectories: Sequence[Trajectory]) -> Weights:
    """One number per trajectory, at each of its steps."""
    return [np.full(len(t.rewards), a) for a, t in zip(advantage, trajectories, strict=True)]


def groups(trajectories: Sequence[Trajectory]) -> list[list[int]]:
    """Indices of the members of each group. Raises CreditError where one cannot be compared."""
    members: dict[tuple[str, str], list[int]] = {}
    for i, trajectory in enumerate(trajectories):
        if not trajectory.group:
            raise CreditError(
                f"rollout {i} of {trajectory.env_id} has no group; make tasks with "
                "`grouped(tasks, size)`, give a source a group_size of 2 or more, or use "
                "MonteCarloReturn"
            )
        members.setdefault((trajectory.group, trajectory.agent), []).append(i)
    for (group, agent), indices in members.items():
        if len(indices) < 2:
            raise CreditError(
                f"group {group!r} has a single rollout of {agent!r}, which has nothing to be "
                "compared with: play groups of 2 or more, or use MonteCarloReturn"
            )
    return list(members.values())


def center(earned: Array) -> Array:
    """`earned` less its mean; exactly 0.0 where it spans no more than EQUAL."""
    if np.ptp(earned) <= EQUAL:
        return np.zeros_like(earned)
    centered: Array = earned - earned.mean()
    return centered


def check_statistics(name: str, ddof: int, eps: float) -> None:
    """Raise ConfigError for values that no statistic can be computed with."""
    # A ddof of 2 would divide by 0 in a group of two.
    if ddof not in (0, 1) or not 0 <= eps < math.inf:
        raise ConfigError(
            f"{name} has ddof={ddof} and eps={eps}; the first must be 0 or 1, the second finite "
            "and >= 0"
        )


def rewards_of(trajectory: Trajectory) -> Array:
    """Rewards of the steps, float64 [S]. Raises CreditError for one that is not finite."""
    if not np.isfinite(trajectory.rewards).all():
        raise CreditError(
            f"a rollout of {trajectory.env_id} in group {trajectory.group!r} has the rewards "
            f"{trajectory.rewards.tolist()}; all must be finite"
        )
    return trajectory.rewards
