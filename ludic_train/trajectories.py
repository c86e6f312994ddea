"""Trajectories: rollouts in tokens, before any credit."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.sampling_masks import MASK_REMEDY
from ludic_gym.types import Completion, Rollout, Task
from ludic_train.errors import UntrainableRollout
from ludic_train.expert_text import UNKNOWN, experts_from_base64
from ludic_train.types import SAWItem, Trajectory

if TYPE_CHECKING:
    pass

# Longer texts of an info hold nothing that credit could use, and would travel with each group.
LONGEST_INFO_TEXT = 200
# The number of a step, and one of its model calls.
Call = tuple[int, Completion]


def trajectory_from(rollout: Rollout) -> Trajectory:
    """The rollout in tokens, without credit.

    A model call whose prompt extends the row so far (prompt and completions, token by token)
    continues that row; any other starts a new one. Text is never tokenised again.
    Raises UntrainableRollout for calls without token ids, and for log-probs that are not those of
    the policy being trained: sampled greedily, or with top_p, top_k or min_p by an endpoint that
    does not return its sampling masks.
    """
    calls = [
        (number, completion)
        for number, step in enumerate(rollout.steps)
        for completion in step.decision.completions
    ]
    for _, completion in calls:
        _require_trainable(completion, rollout)
    require_finite(rollout)
    table = [
        (number, len(call.completion_ids or ()), call is last and step.decision.cut_off)
        for number, step in enumerate(rollout.steps)
        for last in step.decision.completions[-1:]
        for call in step.decision.completions
    ]
    last = rollout.steps[-1] if rollout.steps else None
    truncated = last is not None and last.truncated
    return Trajectory(
        rows=tuple(_row(chain, rollout, truncated=truncated) for chain in _chains(calls)),
        rewards=np.array([step.reward for step in rollout.steps], np.float64),
        parsed=np.array([step.decision.action is not None for step in rollout.steps], bool),
        completions=np.array(table, np.int32).reshape(-1, 3),
        env_id=rollout.task.env_id,
        agent=rollout.agent,
        group=rollout.task.group,
        task=task_key(rollout.task),
        truncated=truncated,
        info=_plain(last.info) if last is not None else {},
    )


def task_key(task: Task) -> str:
    """Key of a task, 16 hex digits: equal when the same task comes again."""
    facts = json.dumps([task.env_id, dict(task.kwargs), task.seed, task.options], default=str)
    # A hash, because keys travel to actors and into checkpoints, and options may be long.
    return hashlib.blake2b(facts.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def _require_trainable(completion: Completion, rollout: Rollout) -> None:
    """Raise UntrainableRollout for a call whose tokens or log-probs cannot be trained on."""
    where = f"a completion of agent {rollout.agent!r} in {rollout.task.env_id}"
    if not completion.prompt_ids or not completion.completion_ids:
        raise UntrainableRollout(
            f"{where} has prompt_ids={completion.prompt_ids} and "
            f"completion_ids={completion.completion_ids}; "
            "train on a client that returns token ids (the local engine, or vLLM)"
        )
    logprobs = completion.logprobs
    if logprobs is not None and len(logprobs) != len(completion.completion_ids):
        raise UntrainableRollout(
            f"{where} has {len(logprobs)} log-probs for {len(completion.completion_ids)} tokens"
        )
    sampling = completion.sampling
    if logprobs is not None and sampling.temperature <= 0:
        raise UntrainableRollout(
            f"{where} was sampled with temperature={sampling.temperature}; "
            "sample training data with temperature > 0"
        )
    if logprobs is not None and leaves_out_tokens(sampling) and completion.sampling_mask is None:
        raise UntrainableRollout(
            f"{where} was sampled with top_p={sampling.top_p}, top_k={sampling.top_k}, min_p="
            f"{sampling.min_p}, and without the tokens that these left: {MASK_REMEDY}"
        )


def require_finite(rollout: Rollout) -> None:
    """Raise UntrainableRollout for a reward or a log-prob that no gradient could be made of."""
    where = f"a rollout of agent {rollout.agent!r} in {rollout.task.env_id}"
    where += f", group {rollout.task.group!r},"
    for number, step in enumerate(rollout.steps):
        if not abs(step.reward) <= LARGEST_REWARD:
            raise UntrainableRollout(
                f"{where} earned {step.reward} in step {number}; give finite rewards, at most "
                f"{LARGEST_REWARD:g} in size"
            )
        for completion in step.decision.completions:
            bad = [p for p in completion.logprobs or () if not abs(p) < math.inf]
            if bad:
                raise UntrainableRollout(
                    f"{where} has a log-prob of {bad[0]} in step {number}: its sampler is at fault"
                )


def _chains(calls: Iterable[Call]) -> Iterator[list[Call]]:
    """Calls that make one row each: every prompt extends all tokens before it."""
    chain: list[Call] = []
    for number, completion in calls:
        if chain and not _continues(number, completion, chain[-1]):
            yield chain
            chain = []
        chain.append((number, completion))
    if chain:
        yield chain


def _continues(number: int, completion: Completion, before: Call) -> bool:
    """True if the call, of that step, can stand in the row that ends with the one before it."""
    step, last = before
    prompt, ids = completion.prompt_ids or (), _all_ids(last)
    # Ids and not text: another way to cut the same text into tokens has another probability. A row
    # has one temperature, and its log-probs, masks and versions are known for all or for none.
    return (
        # Without a token between them, only a reply that was cut off is continued.
        len(prompt) >= len(ids) + (number != step)
        and prompt[: len(ids)] == ids
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.sampling_mask is None) == (last.sampling_mask is None)
        and (completion.policy_version is None) == (last.policy_version is None)
        and (completion.routed_experts is None) == (last.routed_experts is None)
    )


def _all_ids(completion: Completion) -> tuple[int, ...]:
    """Token ids of prompt and completion."""
    return (completion.prompt_ids or ()) + (completion.completion_ids or ())


def _row(chain: Sequence[Call], rollout: Rollout, *, truncated: bool) -> SAWItem:
    """One row of the calls, whose last one holds the tokens of all."""
    _, last = chain[-1]
    ids = _all_ids(last)
    length = len(ids)
    steps = np.full(length, -1, np.int32)
    logprobs = None if last.logprobs is None else np.zeros(length, np.float32)
    versions = None if last.policy_version is None else np.full(length, -1, np.int32)
    masks = [completion.sampling_mask or b"" for _, completion in chain]
    for number, completion in chain:
        where = slice(len(completion.prompt_ids or ()), len(_all_ids(completion)))
        steps[where] = number
        if logprobs is not None:
            logprobs[where] = completion.logprobs
        if versions is not None:
            # Per token, where a server got new params in the middle of a completion.
            known = completion.versions or completion.policy_version
            versions[where] = -1 if known is None else known
    return SAWItem(
        input_ids=np.asarray(ids, np.int32),
        action_mask=steps >= 0,
        weight=np.zeros(length, np.float32),
        behavior_logprobs=logprobs,
        sampling_mask=None if last.sampling_mask is None else b"".join(masks),
        versions=versions,
        steps=steps,
        temperature=last.sampling.temperature,
        truncated=truncated,
        group=rollout.task.group,
        agent=rollout.agent,
        experts=None if last.routed_experts is None else _experts(chain, length),
    )


def _experts(chain: Sequence[Call], length: int) -> NDArray[np.int16]:
    """Experts of a row whose calls report them, [length, layers, k].

    Raises UntrainableRollout for another number of them than tokens.
    """
    parts: list[NDArray[np.int16]] = []
    known = 0
    for _, completion in chain:
        found = experts_from_base64(completion.routed_experts or "")
        read = len(_all_ids(completion)) - 1
        if len(found) != read or (parts and found.shape[1:] != parts[0].shape[1:]):
            raise UntrainableRollout(
                f"experts of shape {found.shape} came with prompt and completion of {read + 1} "
                f"tokens: those of {read} are expected, in the same layers in each call"
            )
        # A later call reads the same tokens again, but these were sampled by the first one.
        parts.append(found[known:])
        known = read
    # No expert has read the last token.
    last = np.full((length - known, *parts[0].shape[1:]), UNKNOWN, np.int16)
    return np.concatenate([*parts, last])


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
    return not any("\ud800" <= character <= "\udfff" for character in value)
