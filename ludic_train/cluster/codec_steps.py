"""Rewards, parsed flags and model calls of all trajectories of a group, as bytes and back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_train.cluster.codec_arrays import Array, array_of, highest, joined
from ludic_train.errors import BadGroup
from ludic_train.types import Trajectory

REWARD, CALL = np.dtype("<f8"), np.dtype("<i4")


class Steps(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The S steps and C model calls of all trajectories in order.

    rewards: float64 [S]. parsed: S bytes, 0 or 1. completions: int32 [C, 3], as in `Trajectory`.
    """

    rewards: bytes
    parsed: bytes
    completions: bytes


class StepArrays(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Arrays of all trajectories, as in `Trajectory`; read-only."""

    rewards: Array
    parsed: Array
    completions: Array


def packed_steps(trajectories: Sequence[Trajectory]) -> Steps:
    """The steps as they are sent. Raises BadGroup for another number of flags than of rewards."""
    for each in trajectories:
        if len(each.parsed) != len(each.rewards):
            raise BadGroup(f"{len(each.parsed)} parsed steps of {len(each.rewards)}")
    parsed = joined([each.parsed for each in trajectories], np.bool_)
    return Steps(
        rewards=joined([each.rewards for each in trajectories], REWARD).tobytes(),
        parsed=parsed.tobytes(),
        completions=joined([each.completions for each in trajectories], CALL).tobytes(),
    )


def joined_steps(
    found: Sequence[Steps], calls: Sequence[Sequence[tuple[int, int]]]
) -> Steps | None:
    """The steps of several groups as those of one; None where some do not fit their trajectories.

    calls: the steps and the model calls of each trajectory of each group.
    """
    for steps, of in zip(found, calls, strict=True):
        num_steps, num_calls = sum([s for s, _ in of]), sum([c for _, c in of])
        sizes = (len(steps.rewards), len(steps.parsed), len(steps.completions))
        if sizes != (REWARD.itemsize * num_steps, num_steps, 3 * CALL.itemsize * num_calls):
            return None
    return Steps(
        rewards=b"".join([steps.rewards for steps in found]),
        parsed=b"".join([steps.parsed for steps in found]),
        completions=b"".join([steps.completions for steps in found]),
    )


def steps_of(found: Steps, num_steps: Sequence[int], num_calls: Sequence[int]) -> StepArrays:
    """The steps of all trajectories. num_steps, num_calls: of each one.

    Raises BadGroup for those that credit could not be assigned to.
    """
    rewards = array_of(found.rewards, REWARD, "rewards")
    if (claimed := sum(num_steps)) != len(rewards):
        raise BadGroup(f"{len(rewards)} rewards for {claimed} steps")
    # Where the sum of all squares is small, each of them is; half the time of a look at each.
    if not np.vdot(rewards, rewards) <= LARGEST_REWARD**2:
        _check_rewards(rewards)
    if len(found.parsed) != len(rewards):
        raise BadGroup(f"{len(found.parsed)} parsed steps of {len(rewards)}")
    # Numpy stores booleans as bytes of 0 and 1, and no others may come to it.
    if other := found.parsed.translate(None, b"\0\1"):
        raise BadGroup(f"a parsed flag is {other[0]}")
    completions = array_of(found.completions, CALL, "completions")
    if (calls := 3 * sum(num_calls)) != len(completions):
        raise BadGroup(f"{len(completions)} numbers of completions instead of {calls}")
    _check_completions(completions, num_steps, num_calls)
    parsed = np.frombuffer(found.parsed, np.bool_)
    return StepArrays(rewards, parsed, completions.reshape(-1, 3))


def _check_rewards(rewards: Array) -> None:
    """Raise BadGroup for a reward that is not finite, or too large."""
    # The negation, so that a nan is bad too.
    bad = rewards[~(np.abs(rewards) <= LARGEST_REWARD)]
    if len(bad):
        shown = bad[:8].tolist()
        raise BadGroup(f"of the rewards, {shown} are not finite, or above {LARGEST_REWARD:g}")


def _check_completions(
    completions: Array, num_steps: Sequence[int], num_calls: Sequence[int]
) -> None:
    """Raise BadGroup for negative numbers, and for steps that a trajectory does not have."""
    # Without their sign, negative numbers are the largest.
    if highest(completions.view(np.uint32)) >= 2**31:
        raise BadGroup(f"a number of a completion is {completions.min()}")
    # Numbers of steps index the rewards and the credit later.
    steps = completions[::3]
    if highest(steps) < min(num_steps, default=0):
        return
    if (steps >= np.repeat(np.array(num_steps, int), num_calls)).any():
        raise BadGroup("a completion is of none of the steps of its trajectory")
