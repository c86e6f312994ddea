"""From episodes to rows, for rollout sources, actors, recorded files and matches.

    Episode -> Rollout -> Trajectory -> (filter, credit) -> SAWItem

A `Trajectory` holds exactly the tokens that were sampled. Filters and credit need the whole batch,
so `rows_from` runs where the batch is: in the trainer's process.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from ludic_gym.errors import EpisodeError
from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.sampling_masks import MASK_REMEDY
from ludic_gym.types import Completion, Episode, Rollout, Task
from ludic_train.errors import CreditError, UntrainableRollout
from ludic_train.token_rows import Call, chains, row_of
from ludic_train.types import REWARDS, SAWItem, Trajectory

if TYPE_CHECKING:
    from ludic_train.algorithms.credit import Weights
    from ludic_train.algorithms.presets import RLAlgorithm
# Longer texts of an info hold nothing that credit could use, and would travel with each group.
LONGEST_INFO_TEXT = 200
# That of `json.dumps(..., default=str)`, which would make one for every task.
_ENCODER = json.JSONEncoder(default=str)


def rows_from(rollouts: Iterable[Rollout | Trajectory], algo: RLAlgorithm) -> list[SAWItem]:
    """Rows of the rollouts that `algo` keeps, with its credit: `rows_from(rollouts, grpo())`.

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
    rewards = REWARDS in algo.attach
    by_step = _checked(weights, kept)
    return [
        row
        for number, (trajectory, own) in enumerate(zip(kept, by_step, strict=True))
        for row in _credited(trajectory, own, f"{batch}-{number}", rewards=rewards)
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


def _checked(weights: Weights, kept: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
    """The weights [S] of each rollout in float32.

    Raises CreditError unless each rollout has one finite weight per step.
    """
    # The error of an overflow names its rollout, which numpy's warning would not.
    with np.errstate(over="ignore"):
        by_step = [np.asarray(own, np.float32) for own in weights]
    for trajectory, own in zip(kept, by_step, strict=True):
        if own.shape != trajectory.rewards.shape:
            raise CreditError(
                f"the credit of a rollout of {trajectory.env_id} has shape {list(own.shape)}, and "
                f"it has {len(trajectory.rewards)} steps: return one weight per step"
            )
    # All rollouts at once: NumPy's calls for one take longer than its steps.
    if not np.isfinite(np.concatenate(by_step)).all():
        bad = next(i for i, own in enumerate(by_step) if not np.isfinite(own).all())
        raise CreditError(
            f"the credit of a rollout of {kept[bad].env_id}, group {kept[bad].group!r}, is "
            f"{np.asarray(weights[bad])[:8].tolist()} for the rewards "
            f"{kept[bad].rewards[:8].tolist()}; float32 must hold it"
        )
    return by_step


def _credited(
    trajectory: Trajectory, by_step: NDArray[np.float32], name: str, *, rewards: bool
) -> Iterator[SAWItem]:
    """The rows of a rollout with the weights [S] of its steps, under the rollout's new name."""
    earned = _earned(trajectory) if rewards else [None] * len(trajectory.rows)
    for row, own in zip(trajectory.rows, earned, strict=True):
        assert row.steps is not None
        yield structs.replace(
            row,
            # Step -1, off the mask, takes some weight, which the mask removes again.
            weight=by_step.take(row.steps) * row.action_mask,
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


def trajectory_from(rollout: Rollout) -> Trajectory:
    """The rollout in tokens, without credit.

    A model call whose prompt extends a row so far (prompt and completions, token by token)
    continues that row; any other starts a new one. Text is never tokenised again.
    Raises UntrainableRollout for calls without token ids, and for log-probs that are not those of
    the policy being trained: sampled greedily, or with top_p, top_k or min_p by an endpoint that
    does not return its sampling masks.
    """
    calls, table = list[Call](), list[int]()
    for number, step in enumerate(rollout.steps):
        for completion in step.decision.completions:
            if fault := _fault(completion):
                raise UntrainableRollout(
                    f"a completion of agent {rollout.agent!r} in {rollout.task.env_id} {fault}"
                )
            calls.append((number, completion))
            table += (number, len(completion.completion_ids or ()), 0)
        if step.decision.cut_off:
            table[-1] = 1
    require_finite(rollout)
    last = rollout.steps[-1] if rollout.steps else None
    truncated = last is not None and last.truncated
    return Trajectory(
        rows=tuple(row_of(chain, rollout, truncated=truncated) for chain in chains(calls)),
        rewards=np.array([step.reward for step in rollout.steps], np.float64),
        parsed=np.array([step.decision.action is not None for step in rollout.steps], bool),
        completions=np.array(table, np.int32).reshape(-1, 3),
        env_id=rollout.task.env_id,
        agent=rollout.agent,
        group=rollout.task.group,
        task=task_key(rollout.task),
        env_key=env_key(rollout.task.env_id, rollout.task.kwargs),
        truncated=truncated,
        info=_plain(last.info) if last is not None else {},
    )


def _fault(completion: Completion) -> str:
    """The reason for which a call's tokens or log-probs cannot be trained on; "" for none."""
    ids, logprobs, sampling = completion.completion_ids, completion.logprobs, completion.sampling
    if not completion.prompt_ids or not ids:
        return (
            f"has prompt_ids={completion.prompt_ids} and completion_ids={ids}; "
            "train on a client that returns token ids (the local engine, or vLLM)"
        )
    if logprobs is None:
        return ""
    if len(logprobs) != len(ids):
        return f"has {len(logprobs)} log-probs for {len(ids)} tokens"
    if sampling.temperature <= 0:
        return (
            f"was sampled with temperature={sampling.temperature}; "
            "sample training data with temperature > 0"
        )
    if completion.sampling_mask is None and leaves_out_tokens(sampling):
        return (
            f"was sampled with top_p={sampling.top_p}, top_k={sampling.top_k}, min_p="
            f"{sampling.min_p}, and without the tokens that these left: {MASK_REMEDY}"
        )
    return ""


def require_finite(rollout: Rollout) -> None:
    """Raise UntrainableRollout for a reward, log-prob or completion without a gradient."""
    for number, step in enumerate(rollout.steps):
        if not abs(step.reward) <= LARGEST_REWARD:
            raise UntrainableRollout(
                f"{_named(rollout)} earned {step.reward} in step {number}; give finite rewards, at "
                f"most {LARGEST_REWARD:g} in size"
            )
        for completion in step.decision.completions:
            if completion.completion_ids == ():
                raise UntrainableRollout(
                    f"{_named(rollout)} has a completion of no tokens in step {number}"
                )
            # The sum of many is finite only if each is: a tenth of the time of a look at each.
            logprobs = completion.logprobs or ()
            is_sound = math.isfinite(sum(logprobs))
            if bad := [] if is_sound else [p for p in logprobs if not abs(p) < math.inf]:
                raise UntrainableRollout(
                    f"{_named(rollout)} has a log-prob of {bad[0]} in step {number}: its sampler "
                    "is at fault"
                )


def _named(rollout: Rollout) -> str:
    task = rollout.task
    return f"a rollout of agent {rollout.agent!r} in {task.env_id}, group {task.group!r},"


def _plain(info: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The numbers, flags and short texts of an info."""
    found = dict[str, bool | int | float | str]()
    for name, value in info.items():
        # NumPy's scalars become Python's, which any wire format knows.
        plain = value.item() if isinstance(value, np.generic) else value
        if _is_plain(plain) and _is_text(name):
            found[name] = plain
    return found


def _is_plain(value: object) -> bool:
    """True for values that every wire format can carry: integers have 64 bits."""
    if isinstance(value, str):
        return len(value) <= LONGEST_INFO_TEXT and _is_text(value)
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _is_text(value: str) -> bool:
    """False for halves of surrogate pairs, which no encoding has bytes for."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def task_key(task: Task) -> str:
    """Key of a task, 16 hex digits: equal when the same task comes again."""
    return _hash(_text([task.env_id, dict(task.kwargs), task.seed, task.options]))


def env_key(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Key of an environment with its arguments in any order; a list is equal to a tuple."""
    return _sorted_key(_text([env_id, dict(kwargs)]))


# Most rollouts of a run share their environment.
@lru_cache(maxsize=1024)
def _sorted_key(text: str) -> str:
    env_id, kwargs = json.loads(text)
    return _hash(_text([env_id, dict(sorted(kwargs.items()))]))


def _text(facts: Sequence[Any]) -> str:
    return _ENCODER.encode(facts)


def _hash(text: str) -> str:
    # A hash, because keys travel to actors and into checkpoints, and arguments may be long.
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()
