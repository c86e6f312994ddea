"""From episodes to rows, for rollout sources, actors, recorded files and matches.

    Episode -> Rollout -> Trajectory -> (filter, credit) -> SAWItem

A `Trajectory` holds exactly the tokens that were sampled. Filters and credit need the whole batch,
so `rows_from` runs where the batch is: in the trainer's process.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import EpisodeError
from ludic_gym.sampling_masks import unpacked_masks
from ludic_gym.types import Episode, Rollout
from ludic_train.errors import CreditError, UntrainableRollout
from ludic_train.metrics import Metrics, Stat, Total
from ludic_train.trajectories import require_finite, trajectory_from
from ludic_train.types import REWARDS, SAWItem, Trajectory

if TYPE_CHECKING:
    from ludic_train.algorithms.presets import RLAlgorithm


def rows_from(rollouts: Iterable[Rollout | Trajectory], algo: RLAlgorithm) -> list[SAWItem]:
    """Rows of the rollouts that `algo` keeps, with its credit.

        rows = rows_from(rollouts, grpo())

    rollouts: in text with token ids, or trajectories already.
    Step t of a rollout gets the weight w[t] of the algorithm's credit, at all tokens of all its
    model calls. Statistics are over the rollouts given, so these should be a whole batch.
    Raises UntrainableRollout as `trajectory_from` does, and CreditError from the algorithm.
    """
    trajectories = [r if isinstance(r, Trajectory) else trajectory_from(r) for r in rollouts]
    return credited_rows(filtered(trajectories, algo), algo)


def filtered(trajectories: Sequence[Trajectory], algo: RLAlgorithm) -> list[Trajectory]:
    """Trajectories that the algorithm's filter keeps, in order."""
    return list(trajectories) if algo.filter is None else algo.filter(trajectories)


def credited_rows(kept: Sequence[Trajectory], algo: RLAlgorithm) -> list[SAWItem]:
    """Rows of trajectories that passed the filter, with the algorithm's credit.

    kept: a whole batch, since credit compares its rollouts. Their rows are not changed: the result
        has copies, under a new name per rollout and call.
    Raises CreditError where the credit is not one weight per step, and from the algorithm.
    """
    if not kept:
        return []
    weights = algo.credit(kept)
    # Rows of different calls may meet in one update, so ids are not positions alone.
    batch = secrets.token_hex(8)
    return [
        row
        for number, (trajectory, own) in enumerate(zip(kept, weights, strict=True))
        for row in _credited(trajectory, own, f"{batch}-{number}", rewards=REWARDS in algo.attach)
    ]


def failed_if_untrainable(episode: Episode) -> Episode:
    """The episode; without rollouts, and failed with the reason, if they cannot be learned from.

    A sampler's single bad answer costs its episode and not the run.
    """
    try:
        for rollout in episode.rollouts:
            require_finite(rollout)
    except UntrainableRollout as error:
        return replace(episode, rollouts=(), error=f"UntrainableRollout: {error}")
    return episode


def trajectories_from(episodes: Sequence[Episode], group_size: int) -> list[Trajectory]:
    """Trajectories of the episodes that did not fail, without groups of one survivor.

    group_size: members that a group should have; a group of 1 is no comparison and always stays.
    Raises EpisodeError, with the first failure, where more than half failed, and UntrainableRollout
    as `trajectory_from` does and where no rollout has a model call.
    """
    failed = [episode for episode in episodes if episode.error is not None]
    # Single failures are a fact of tools and servers; most failing is a fault of the program.
    if len(failed) > len(episodes) / 2:
        raise EpisodeError(
            f"{len(failed)} of {len(episodes)} episodes failed; the first: {failed[0].error}"
        )
    survivors = [episode for episode in episodes if episode.error is None]
    sizes = Counter(episode.task.group for episode in survivors)
    # Only where something failed: a group of one that was played so is the caller's choice.
    if group_size > 1 and failed:
        survivors = [episode for episode in survivors if sizes[episode.task.group] > 1]
    trajectories = [trajectory_from(r) for episode in survivors for r in episode.rollouts]
    if trajectories and not any(trajectory.rows for trajectory in trajectories):
        raise UntrainableRollout(
            f"none of {len(trajectories)} rollouts of {trajectories[0].env_id} holds a model call: "
            "play with a policy that calls a chat client"
        )
    return trajectories


def largest_id(row: SAWItem) -> int:
    """The largest token id of the row, those of its sampling masks included."""
    ids: list[NDArray[Any]] = [row.input_ids]
    if row.sampling_mask:
        ids.append(unpacked_masks(row.sampling_mask, row.input_ids[row.action_mask])[1])
    return max(int(each.max()) for each in ids)


def episode_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Metrics of episodes, failed ones included: reward, success, turns, tokens, failures.

    "reward", "turns" and "success" are means per rollout, the last of those whose info has it;
    "tokens/completion" is a mean per model call; "tokens/sampled" and "episodes" are totals, and
    "episodes/failed" is a share.
    """
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    steps = [step for rollout in rollouts for step in rollout.steps]
    ends = [rollout.steps[-1].info for rollout in rollouts if rollout.steps]
    calls = [call for step in steps for call in step.decision.completions]
    return {
        "reward": Stat.of([rollout.total_reward for rollout in rollouts]),
        # Not every environment knows success: a missing one is no failure.
        "success": Stat.of([float(info["success"]) for info in ends if "success" in info]),
        "turns": Stat.of([len(rollout.steps) for rollout in rollouts]),
        "tokens/completion": Stat.of([len(call.completion_ids or ()) for call in calls]),
        "tokens/sampled": Total(sum(len(call.completion_ids or ()) for call in calls)),
        "episodes/failed": Stat.of([float(episode.error is not None) for episode in episodes]),
        "episodes": Total(len(episodes)),
    }


def _credited(
    trajectory: Trajectory, weights: NDArray[np.float64], name: str, *, rewards: bool
) -> Iterator[SAWItem]:
    """The rows of a rollout with the weights [S] of its steps, under the rollout's new name."""
    # An overflow is told with its rollout, in place of numpy's warning.
    with np.errstate(over="ignore"):
        by_step = np.asarray(weights, np.float32)
    if by_step.shape != trajectory.rewards.shape:
        raise CreditError(
            f"the credit of a rollout of {trajectory.env_id} has shape {list(by_step.shape)}, and "
            f"it has {len(trajectory.rewards)} steps: return one weight per step"
        )
    if not np.isfinite(by_step).all():
        raise CreditError(
            f"the credit of a rollout of {trajectory.env_id}, group {trajectory.group!r}, is "
            f"{np.asarray(weights)[:8].tolist()} for the rewards "
            f"{trajectory.rewards[:8].tolist()}; float32 must hold it"
        )
    earned = _earned(trajectory) if rewards else [None] * len(trajectory.rows)
    for row, own in zip(trajectory.rows, earned, strict=True):
        assert row.steps is not None
        yield replace(
            row,
            # Step -1, off the mask, takes some weight, which the mask removes again.
            weight=by_step[row.steps] * row.action_mask,
            rollout=name,
            attachments=row.attachments if own is None else {**row.attachments, REWARDS: own},
        )


def _earned(trajectory: Trajectory) -> list[NDArray[np.float32]]:
    """Per row [T]: each step's reward at the last token sampled for it.

    The reward of a step without a model call goes to the last token before it; without any, to the
    first step that has one.
    """
    # Step -> (row, position) of its last token; a later row of the same step replaces the earlier.
    last: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(trajectory.rows):
        assert row.steps is not None
        at = np.flatnonzero(row.action_mask)
        steps = row.steps[at]
        ends = np.diff(steps, append=-1) != 0
        last |= {
            step: (number, position)
            for step, position in zip(steps[ends].tolist(), at[ends].tolist(), strict=True)
        }
    earned = [np.zeros(len(row.input_ids), np.float32) for row in trajectory.rows]
    if not last:
        return earned
    # Before any model call there is no earlier token; the first call gets what came before it.
    where = last[min(last)]
    for step, reward in enumerate(trajectory.rewards.tolist()):
        where = last.get(step, where)
        earned[where[0]][where[1]] += reward
    return earned
