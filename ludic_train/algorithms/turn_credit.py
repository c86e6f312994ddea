"""Credit by turns of an episode: anchor states, process rewards, and GAE over turns.

A turn is a step of a rollout: an observation, then all tokens that were sampled in reply to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import at_sampled, refined_by_rollout, with_weight
from ludic_train.algorithms.credit import (
    Array,
    CreditAssigner,
    GroupNormalizedReturn,
    MonteCarloReturn,
    Weights,
    check_statistics,
    groups,
    rewards_of,
)
from ludic_train.algorithms.value_head import GAE, generalized_advantages, sampled_values, whitened
from ludic_train.errors import CreditError
from ludic_train.types import BOOTSTRAP, RETURNS, REWARDS, VALUES, SAWItem, Trajectory


@dataclass(frozen=True, slots=True)
class AnchorStateReturn:
    """GiGPO: the credit of the episode, plus that of each step among steps from the same state.

    A = A_episode + weight * A_step. Steps of one group whose observations have the same tokens
    started from the same state; A_step is the discounted return that follows a step, normalised
    among these, and 0 where no other step started there (Feng et al. 2025, arXiv:2505.10978).
    The observation is the part of a prompt after the tokens that were sampled last; where a context
    rewrites history it is the whole prompt, so use one that keeps the dialog, or that has the
    latest observation alone.
    episode: the assigner of A_episode. weight: of A_step. gamma: discount per step of its returns.
    divide_by_std, ddof, eps: of A_step, as in `GroupNormalizedReturn`.
    """

    episode: CreditAssigner = field(default_factory=GroupNormalizedReturn)
    weight: float = 1.0
    gamma: float = 0.95
    divide_by_std: bool = True
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_statistics("AnchorStateReturn", self.ddof, self.eps)
        MonteCarloReturn(self.gamma)
        if not 0 < self.weight < np.inf:
            raise ConfigError(f"AnchorStateReturn.weight is {self.weight}; it must be positive")

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """One weight per step. Raises what `episode` raises."""
        weights = [own.copy() for own in self.episode(trajectories)]
        # Of what has been earned before, nothing is due to the actions in this state.
        later = MonteCarloReturn(self.gamma)(trajectories)
        for members in groups(trajectories):
            same: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
            for i in members:
                for step, state in observations(trajectories[i]).items():
                    same[state].append((i, step))
            # A state of one step has nothing to be compared with, and its values less their mean
            # are 0.
            for places in same.values():
                advantages = relative(
                    np.array([later[i][step] for i, step in places]),
                    divide_by_std=self.divide_by_std,
                    ddof=self.ddof,
                    eps=self.eps,
                )
                for (i, step), advantage in zip(places, advantages.tolist(), strict=True):
                    weights[i][step] += self.weight * advantage
        return weights


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """Process supervision: normalised rewards of steps, summed over the steps that follow.

    r'_t = (r_t - mean) / (std + eps) over all steps of the group, and the weight of a step is
    r'_t + r'_{t+1} + ... (Shao et al. 2024, arXiv:2402.03300, section 4.1.3).
    divide_by_std, ddof, eps: as in `GroupNormalizedReturn`, over the steps of a group.

    >>> rest = {"rows": (), "parsed": np.ones(2, bool), "completions": np.zeros((0, 3), np.int32)}
    >>> played = [
    ...     Trajectory(rewards=np.array(rewards), env_id="mine/Proof-v0", group="a", **rest)
    ...     for rewards in ([1.0, 1.0], [1.0, 0.0])
    ... ]
    >>> [weights.tolist() for weights in ProcessReward(divide_by_std=False)(played)]
    [[0.5, 0.25], [-0.5, -0.75]]
    """

    divide_by_std: bool = True
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_statistics("ProcessReward", self.ddof, self.eps)

    def __call__(self, trajectories: Sequence[Trajectory]) -> Weights:
        """One weight per step. Raises CreditError for a group of fewer than two."""
        weights = [rewards_of(trajectory).copy() for trajectory in trajectories]
        for members in groups(trajectories):
            flat = np.concatenate([weights[i] for i in members])
            # Before they are summed: sums grow with the steps that are left.
            scaled = relative(flat, divide_by_std=self.divide_by_std, ddof=self.ddof, eps=self.eps)
            ends = np.cumsum([len(weights[i]) for i in members])[:-1]
            for i, own in zip(members, np.split(scaled, ends), strict=True):
                weights[i] = own[::-1].cumsum()[::-1]
        return weights


@dataclass(frozen=True, slots=True)
class TurnGAE:
    """Generalised advantage estimation over turns: one advantage for all tokens of a turn.

    delta_k = r_k + gamma V_{k+1} - V_k, V_k the value of the state before the turn's first token
    and r_k the turn's reward; else as `GAE`. A discount then counts decisions of an episode, and
    a long turn does not dilute a reward. Every token of a turn is fitted to the return of its turn.
    gamma: discount per turn. lam, whiten: as in `GAE`.

    Two turns of two and one tokens; each token of a turn gets the advantage of its first state:

    >>> def at_tokens(*values):
    ...     return np.array([0.0, *values], np.float32)
    >>> row = SAWItem(
    ...     input_ids=np.array([7, 5, 6, 8], np.int32),
    ...     action_mask=np.array([False, True, True, True]),
    ...     weight=at_tokens(0, 0, 0),
    ...     steps=np.array([-1, 0, 0, 1], np.int32),
    ...     attachments={REWARDS: at_tokens(0, 0, 1), VALUES: at_tokens(0.125, 0.25, 0.625)},
    ... )
    >>> TurnGAE(lam=0.0, whiten=False)([row])[0].weight.tolist()
    [0.0, 0.5, 0.5, 0.375]
    """

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True

    def __post_init__(self) -> None:
        # The same limits, with the same message.
        GAE(self.gamma, self.lam, self.whiten)

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with advantages as weights and RETURNS attached.

        Reads what `GAE` reads; raises MissingAttachment, and CreditError for rows without steps.
        """
        estimated = refined_by_rollout(items, self._estimated)
        return whitened(estimated) if self.whiten else estimated

    def _estimated(self, rows: Sequence[SAWItem]) -> list[SAWItem]:
        """The rows of one rollout with advantages as weights and RETURNS attached."""
        rewards, values = sampled_values(rows, REWARDS), sampled_values(rows, VALUES)
        after = float(sampled_values(rows[-1:], BOOTSTRAP).sum()) if rows[-1].truncated else 0.0
        parts = [row.steps[row.action_mask] for row in rows if row.steps is not None]
        if len(parts) < len(rows):
            raise CreditError(
                f"a row of rollout {rows[0].rollout!r} does not say which step its tokens belong "
                "to, and TurnGAE needs turns; use rows of rollouts, or GAE"
            )
        steps = np.concatenate(parts)
        # The turn of each token, from 0 without the gaps that steps without sampled tokens leave,
        # such as those of a fixed action.
        turns = np.cumsum(np.diff(steps, prepend=steps[:1]) != 0)
        # There the value head has read the observation and nothing of the reply.
        first = np.flatnonzero(np.diff(turns, prepend=-1))
        earned = np.bincount(turns, rewards).astype(np.float64)
        advantages = generalized_advantages(earned, values[first], self.gamma, self.lam, after)
        goals = advantages + values[first]
        ends = np.cumsum([np.count_nonzero(row.action_mask) for row in rows])[:-1]
        return [
            replace(
                with_weight(row, advantages[own]),
                attachments={**row.attachments, RETURNS: at_sampled(row, goals[own])},
            )
            for row, own in zip(rows, np.split(turns, ends), strict=True)
        ]


def observations(trajectory: Trajectory) -> dict[int, bytes]:
    """Tokens before each step's first call, back to those sampled last, as bytes by step."""
    found: dict[int, bytes] = {}
    for row in trajectory.rows:
        assert row.steps is not None
        # Sampled tokens come in runs, one per call.
        starts = np.flatnonzero(row.action_mask & ~np.append(False, row.action_mask[:-1]))
        ends = np.flatnonzero(row.action_mask & ~np.append(row.action_mask[1:], False)) + 1
        for begin, start in zip([0, *ends[:-1].tolist()], starts.tolist(), strict=True):
            # Further calls of a step follow a tool or a retry, and are no state of the env.
            found.setdefault(int(row.steps[start]), row.input_ids[begin:start].tobytes())
    return found


def relative(values: Array, *, divide_by_std: bool, ddof: int, eps: float) -> Array:
    """Values less their mean, divided by their std; exactly 0 where all are equal."""
    assigner = GroupNormalizedReturn(divide_by_std=divide_by_std, ddof=ddof, eps=eps)
    return assigner.normalized(values)
