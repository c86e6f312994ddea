"""From episodes to rows, for rollout sources, actors, recorded files and matches.

    Episode -> Rollout -> Trajectory -> (filter, credit, filter after credit) -> SAWItem

A `Trajectory` holds exactly the tokens that were sampled. Filters and credit need the whole batch,
so `rows_from` runs where the batch is: in the trainer's process.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludic_gym.errors import EpisodeError
from ludic_gym.records import env_key, plain_info
from ludic_gym.records import task_key as task_key
from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_gym.rollout.outcome import failed_episode
from ludic_gym.sampling import MASK_REMEDY, leaves_out_tokens
from ludic_gym.trail import Trail, token_ids
from ludic_gym.types import Completion, Episode, Rollout
from ludic_train.errors import CreditError, UntrainableRollout
from ludic_train.expert_text import experts_of_calls
from ludic_train.metrics import Metrics, Total
from ludic_train.types import REWARDS, SAWItem, Trajectory

if TYPE_CHECKING:
    from ludic_train.algorithms.credit import Weights
    from ludic_train.algorithms.presets import RLAlgorithm
# Rows of a rollout that a call may continue: a context that rewrites its history leaves one behind
# with every turn, and each is compared with every prompt.
OPEN_ROWS = 8
StepWeights = Sequence[NDArray[np.float32]]
"""Credit [S] of each rollout."""

# The number of a step, and one of its model calls.
Call = tuple[int, Completion]


def rows_from(rollouts: Iterable[Rollout | Trajectory], algo: RLAlgorithm) -> list[SAWItem]:
    """Rows of the rollouts that `algo` keeps, with its credit: `rows_from(rollouts, grpo())`.

    rollouts: in text with token ids, or trajectories already.
    Step t of a rollout gets the weight w[t] of the algorithm's credit, at all tokens of all its
    model calls. Statistics are over the rollouts given, so these should be a whole batch.
    Raises UntrainableRollout as `trajectory_from` does, and CreditError from the algorithm.
    """
    trajectories = [r if isinstance(r, Trajectory) else trajectory_from(r) for r in rollouts]
    selected, _ = filtered(trajectories, algo)
    learned = after_credit(selected, algo)
    return weighted_rows(learned, credited(selected, learned, algo), algo)


def filtered(
    trajectories: Sequence[Trajectory], algo: RLAlgorithm
) -> tuple[list[Trajectory], Metrics]:
    """Trajectories that the algorithm's filter keeps, in order, and how many it leaves alone.

    A rollout whose group lost all others to the filter is left out too where credit compares them:
    there is nothing left to compare it with. The metric "rollouts/alone" counts these.
    """
    if algo.filter is None:
        return list(trajectories), {}
    kept = algo.filter(trajectories)
    if not algo.compares_groups:
        return kept, {}
    before, after = (Counter((t.group, t.agent) for t in each) for each in (trajectories, kept))
    compared = [t for t in kept if after[t.group, t.agent] > 1 or before[t.group, t.agent] == 1]
    return compared, {"rollouts/alone": Total(len(kept) - len(compared))}


def after_credit(selected: Sequence[Trajectory], algo: RLAlgorithm) -> Sequence[Trajectory]:
    """Those of the rollouts of a batch that are learned from, once credit has compared them."""
    return selected if algo.filter_after_credit is None else algo.filter_after_credit(selected)


def credited(
    selected: Sequence[Trajectory], learned: Sequence[Trajectory], algo: RLAlgorithm
) -> StepWeights:
    """The credit [S] of the rollouts that are learned from; the others count in it alone.

    selected: a whole batch that passed the filter. learned: those of it that `after_credit` keeps.
    Raises CreditError as `step_weights`.
    """
    weights = step_weights(selected, algo)
    by_id = {id(t): w for t, w in zip(selected, weights, strict=True)}
    return [by_id[id(t)] for t in learned]


def step_weights(selected: Sequence[Trajectory], algo: RLAlgorithm) -> list[NDArray[np.float32]]:
    """The algorithm's credit [S] of each trajectory that passed the filter.

    selected: a whole batch, since credit compares its rollouts.
    Raises CreditError where the credit is not one finite weight per step, and from the algorithm.
    """
    return _checked(algo.credit(selected), selected) if selected else []


def weighted_rows(
    learned: Sequence[Trajectory], by_step: StepWeights, algo: RLAlgorithm
) -> list[SAWItem]:
    """Rows of the trajectories with the weights of `credited`.

    Their own rows are not changed: the result has copies, under a new name per rollout and call.
    """
    # Rows of different calls may meet in one update, so ids are not positions alone.
    batch = secrets.token_hex(8)
    rewards = REWARDS in algo.attach
    return [
        row
        for number, (trajectory, weights) in enumerate(zip(learned, by_step, strict=True))
        for row in _rows_of(trajectory, weights, f"{batch}-{number}", rewards=rewards)
    ]


def credit_by_group(
    seen: Sequence[Trajectory],
    learned: Sequence[Trajectory],
    by_step: StepWeights,
    algo: RLAlgorithm,
) -> dict[str, list[list[float] | None]] | None:
    """Credit per step of each trajectory, for a recorder; None for those that were left out.

    seen: of whole groups. None as a whole for an algorithm that gives credit in the update.
    """
    if algo.refine is not None:
        return None
    weights_by_id = {id(t): weights.tolist() for t, weights in zip(learned, by_step, strict=True)}
    by_group = defaultdict[str, list[list[float] | None]](list)
    for trajectory in seen:
        by_group[trajectory.group].append(weights_by_id.get(id(trajectory)))
    return by_group


def failed_if_untrainable(episode: Episode) -> Episode:
    """The episode; without rollouts, and failed with the reason, if they cannot be learned from.

    A sampler's single bad answer costs its episode and not the run.
    """
    try:
        for rollout in episode.rollouts:
            require_finite(rollout)
    except UntrainableRollout as error:
        return failed_episode(episode, error)
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


def _checked(weights: Weights, selected: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
    """The weights [S] of each rollout in float32. Raises CreditError unless all are finite."""
    # The error of an overflow names its rollout, which numpy's warning would not.
    with np.errstate(over="ignore"):
        by_step = [np.asarray(array, np.float32) for array in weights]
    for trajectory, array in zip(selected, by_step, strict=True):
        if array.shape != trajectory.rewards.shape:
            raise CreditError(
                f"the credit of a rollout of {trajectory.env_id} has shape {list(array.shape)}, "
                f"and it has {len(trajectory.rewards)} steps: return one weight per step"
            )
    # All rollouts at once: NumPy's calls for one take longer than its steps.
    if not np.isfinite(np.concatenate(by_step)).all():
        bad = next(i for i, array in enumerate(by_step) if not np.isfinite(array).all())
        raise CreditError(
            f"the credit of a rollout of {selected[bad].env_id}, group {selected[bad].group!r}, is "
            f"{np.asarray(weights[bad])[:8].tolist()} for the rewards "
            f"{selected[bad].rewards[:8].tolist()}; float32 must hold it"
        )
    return by_step


def _rows_of(
    trajectory: Trajectory, by_step: NDArray[np.float32], name: str, *, rewards: bool
) -> Iterator[SAWItem]:
    """The rows of a rollout with the weights [S] of its steps, under the rollout's new name."""
    earned = _earned(trajectory) if rewards else [None] * len(trajectory.rows)
    for row, row_rewards in zip(trajectory.rows, earned, strict=True):
        assert row.steps is not None
        yield replace(
            row,
            # Step -1, off the mask, takes some weight, which the mask removes again.
            weight=by_step.take(row.steps) * row.action_mask,
            rollout=name,
            attachments=row.attachments
            if row_rewards is None
            else {**row.attachments, REWARDS: row_rewards},
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
        info=plain_info(last.info) if last is not None else {},
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
            if completion.completion_ids is not None and not completion.completion_ids:
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


def chains(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls that make one row each: every prompt extends all tokens before it.

    Rows are in the order of their first calls. Dialogs that take turns, as those of an agent and
    its helper do, are a row each.
    """
    if len(calls) == 1:
        return [list(calls)]
    rows = list[list[Call]]()
    for call in calls:
        # The newest first: of two rows that a prompt extends, the later one is longer.
        row = next((row for row in rows[: -OPEN_ROWS - 1 : -1] if _continues(call, row[-1])), None)
        if row is None:
            rows.append([call])
        else:
            row.append(call)
    return rows


def _continues(call: Call, before: Call) -> bool:
    """True if a call can stand in the row that ends with the other one."""
    number, completion = call
    step, last = before
    prompt, first = token_ids(completion.prompt_ids or ()), token_ids(last.prompt_ids or ())
    end = len(first) + len(last.completion_ids or ())
    # Ids and not text: another way to cut the same text into tokens has another probability.
    # Without a token between them, only a reply that was cut off is continued. A row has one
    # temperature, and its log-probs, masks and versions are known for all or none.
    return (
        (len(prompt) > end or (len(prompt) == end and number == step))
        and prompt[len(first) : end] == tuple(last.completion_ids or ())
        and prompt.kept(first) == len(first)
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.sampling_mask is None) == (last.sampling_mask is None)
        and (completion.policy_version is None) == (last.policy_version is None)
        and (completion.routed_experts is None) == (last.routed_experts is None)
    )


def row_of(chain: Sequence[Call], rollout: Rollout, *, truncated: bool) -> SAWItem:
    """One row of the calls, whose last one holds the tokens of all."""
    calls = [completion for _, completion in chain]
    last = calls[-1]
    # By turns: tokens between two completions, and tokens of a completion.
    lengths, numbers, ends, end = list[int](), list[int](), list[int](), 0
    for number, call in chain:
        prompt, sampled = len(call.prompt_ids or ()), len(call.completion_ids or ())
        lengths += (prompt - end, sampled)
        numbers += (-1, number)
        ends.append(end := prompt + sampled)
    turns = np.array(lengths)
    steps = np.array(numbers, np.int32).repeat(turns)
    mask = steps >= 0
    logprobs = versions = experts = None
    if last.logprobs is not None:
        logprobs = np.zeros(end, np.float32)
        logprobs[mask] = _array([call.logprobs for call in calls], np.float32)
    if last.policy_version is not None:
        if any(call.versions for call in calls):
            versions = np.full(end, -1, np.int32)
            versions[mask] = [version for call in calls for version in _versions(call)]
        else:
            by_turn = [version for call in calls for version in (-1, call.policy_version)]
            versions = np.array(by_turn, np.int32).repeat(turns)
    if last.routed_experts is not None:
        expert_texts = [
            (end - 1, c.routed_experts or "") for c, end in zip(calls, ends, strict=True)
        ]
        experts = experts_of_calls(expert_texts, end)
    masked = last.sampling_mask is not None
    return SAWItem(
        input_ids=_array([last.prompt_ids, last.completion_ids], np.int32),
        action_mask=mask,
        weight=np.zeros(end, np.float32),
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
    version = -1 if call.policy_version is None else call.policy_version
    return call.versions or [version] * len(call.completion_ids or ())


def _array(parts: Sequence[Sequence[float] | None], dtype: DTypeLike) -> NDArray[Any]:
    """The numbers of all parts in order. parts: trails, whose stores are copied as they are."""
    stores = [np.asarray(part.items, dtype) for part in parts if isinstance(part, Trail)]
    return np.concatenate(stores)
