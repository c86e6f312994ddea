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
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from ludic_train.expert_text import experts_of_calls
from ludic_train.types import REWARDS, SAWItem, Trajectory

if TYPE_CHECKING:
    from ludic_train.algorithms.presets import RLAlgorithm
# Rows of a rollout that a call may continue: a context that rewrites its history leaves one behind
# with every turn, and each is compared with every prompt.
OPEN_ROWS = 8
# The number of a step, and one of its model calls.
Call = tuple[int, Completion]
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
    # The error of an overflow names its rollout, which numpy's warning would not.
    with np.errstate(over="ignore"):
        return [
            row
            for number, (trajectory, own) in enumerate(zip(kept, weights, strict=True))
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


def _credited(
    trajectory: Trajectory, weights: NDArray[np.float64], name: str, *, rewards: bool
) -> Iterator[SAWItem]:
    """The rows of a rollout with the weights [S] of its steps, under the rollout's new name."""
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
            table += (number, len(_sampled(completion)), 0)
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
    where = f"a rollout of agent {rollout.agent!r} in {rollout.task.env_id}"
    where += f", group {rollout.task.group!r},"
    for number, step in enumerate(rollout.steps):
        if not abs(step.reward) <= LARGEST_REWARD:
            raise UntrainableRollout(
                f"{where} earned {step.reward} in step {number}; give finite rewards, at most "
                f"{LARGEST_REWARD:g} in size"
            )
        for completion in step.decision.completions:
            if completion.completion_ids == ():
                raise UntrainableRollout(f"{where} has a completion of no tokens in step {number}")
            # The sum of many is finite only if each is: a tenth of the time of a look at each.
            logprobs = completion.logprobs or ()
            is_sound = math.isfinite(sum(logprobs))
            if bad := [] if is_sound else [p for p in logprobs if not abs(p) < math.inf]:
                raise UntrainableRollout(
                    f"{where} has a log-prob of {bad[0]} in step {number}: its sampler is at fault"
                )


def _plain(info: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The numbers, flags and short texts of an info."""
    # Numpy's scalars become Python's, which any wire format knows.
    found = {name: v.item() if isinstance(v, np.generic) else v for name, v in info.items()}
    return {name: value for name, value in found.items() if _is_text(name) and _is_plain(value)}


def _is_plain(value: object) -> bool:
    """True for values that every wire format can carry: integers have 64 bits."""
    if isinstance(value, str):
        return len(value) <= LONGEST_INFO_TEXT and _is_text(value)
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _is_text(value: str) -> bool:
    """False for halves of surrogate pairs, which no encoding has bytes for."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def chains(calls: Iterable[Call]) -> list[list[Call]]:
    """Calls that make one row each: every prompt extends all tokens before it.

    Rows are in the order of their first calls. Dialogs that take turns, as those of an agent and
    its helper do, are a row each.
    """
    found: list[list[Call]] = []
    for call in calls:
        # The newest first: of two rows that a prompt extends, the later one is longer.
        for chain in found[: -OPEN_ROWS - 1 : -1]:
            if _continues(call, chain[-1]):
                chain.append(call)
                break
        else:
            found.append([call])
    return found


def _continues(call: Call, before: Call) -> bool:
    """True if the call can stand in the row that ends with the one before it."""
    number, completion = call
    step, last = before
    prompt, begun, added = completion.prompt_ids or (), last.prompt_ids or (), _sampled(last)
    start, end = len(begun), len(begun) + len(added)
    # Ids and not text: another way to cut the same text into tokens has another probability. A row
    # has one temperature, and its log-probs, masks and versions are known for all or for none.
    return (
        # Without a token between them, only a reply that was cut off is continued.
        len(prompt) >= end + (number != step)
        and prompt[start:end] == added
        and prompt[:start] == begun
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.sampling_mask is None) == (last.sampling_mask is None)
        and (completion.policy_version is None) == (last.policy_version is None)
        and (completion.routed_experts is None) == (last.routed_experts is None)
    )


def _sampled(completion: Completion) -> tuple[int, ...]:
    return completion.completion_ids or ()


def row_of(chain: Sequence[Call], rollout: Rollout, *, truncated: bool) -> SAWItem:
    """One row of the calls, whose last one holds the tokens of all."""
    calls = [completion for _, completion in chain]
    last = calls[-1]
    # By turns: tokens between two completions, and tokens of a completion.
    lengths, numbers, ends, end = list[int](), list[int](), list[int](), 0
    for number, call in chain:
        prompt, sampled = len(call.prompt_ids or ()), len(_sampled(call))
        lengths += (prompt - end, sampled)
        numbers += (-1, number)
        ends.append(end := prompt + sampled)
    steps = np.repeat(np.array(numbers, np.int32), lengths)
    mask = steps >= 0
    logprobs = versions = experts = None
    if last.logprobs is not None:
        logprobs = np.zeros(len(steps), np.float32)
        for call, end in zip(calls, ends, strict=True):
            _write(logprobs, end - len(_sampled(call)), call.logprobs or ())
    if last.policy_version is not None:
        if any(call.versions for call in calls):
            versions = np.full(len(steps), -1, np.int32)
            versions[mask] = [version for call in calls for version in _versions(call)]
        else:
            by_turn = [version for call in calls for version in (-1, call.policy_version)]
            versions = np.repeat(np.array(by_turn, np.int32), lengths)
    if last.routed_experts is not None:
        known = [(end - 1, c.routed_experts or "") for c, end in zip(calls, ends, strict=True)]
        experts = experts_of_calls(known, len(steps))
    ids = (last.prompt_ids or ()) + _sampled(last)
    masked = last.sampling_mask is not None
    return SAWItem(
        input_ids=_write(np.empty(len(ids), np.int32), 0, ids),
        action_mask=mask,
        weight=np.zeros(len(steps), np.float32),
        behavior_logprobs=logprobs,
        sampling_mask=b"".join([c.sampling_mask or b"" for c in calls]) if masked else None,
        versions=versions,
        steps=steps,
        temperature=last.sampling.temperature,
        truncated=truncated,
        group=rollout.task.group,
        agent=rollout.agent,
        experts=experts,
    )


def _versions(call: Completion) -> Sequence[int]:
    """The version of each sampled token; they differ where a server got new params meanwhile."""
    known = -1 if call.policy_version is None else call.policy_version
    return call.versions or [known] * len(_sampled(call))


def _write(array: NDArray[Any], at: int, numbers: Sequence[float]) -> NDArray[Any]:
    """The array, with the numbers from `at` on; in half of the time that numpy takes."""
    struct.pack_into(f"{len(numbers)}{array.dtype.char}", array.data, at * array.itemsize, *numbers)
    return array


def task_key(task: Task) -> str:
    """Key of a task, 16 hex digits: equal when the same task comes again."""
    return _key([task.env_id, dict(task.kwargs), task.seed, task.options])


def env_key(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Key of an environment with its arguments in any order; a list is equal to a tuple."""
    return _key([env_id, dict(sorted(kwargs.items()))])


def _key(facts: Sequence[Any]) -> str:
    # A hash, because keys travel to actors and into checkpoints, and arguments may be long.
    text = _ENCODER.encode(facts).encode(errors="backslashreplace")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
