"""State-Action-Weight rows: what a trainer learns from, in exactly the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ludic_gym.types import Completion, Rollout
from ludic_train.errors import UntrainableRollout
from ludic_train.losses import REWARDS
from ludic_train.metrics import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWItem:
    """One row of T tokens with any number of action spans; all arrays are [T].

    input_ids: int32, prompts and completions as the sampler saw them.
    action_mask: bool, True where the token was sampled; never at position 0.
    weight: float32, the credit of the step the token belongs to; 0 off the mask.
    behavior_logprobs: float32 nats under the sampling distribution; 0 off the mask; None for
        data that was not sampled from a known policy.
    versions: int32, the update whose params sampled the token; -1 off the mask; None as above.
    temperature: the one that all spans were sampled with.
    attachments: further per-token arrays that a loss asks for, such as reference log-probs.
    """

    input_ids: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    weight: NDArray[np.float32]
    behavior_logprobs: NDArray[np.float32] | None = None
    versions: NDArray[np.int32] | None = None
    temperature: float = 1.0
    group: str = ""
    agent: str = "agent"
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWBatch:
    """The rows of one batch, and what is worth logging about the episodes they came from."""

    # Left out of the repr, which asyncio takes of every task's result.
    items: tuple[SAWItem, ...] = field(repr=False)
    metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Span:
    """A model call, its credit, and the step's reward if it is the last call of the step."""

    completion: Completion
    weight: float
    reward: float


def items_from(
    rollouts: Sequence[Rollout], weights: Sequence[Sequence[float]], *, rewards: bool = False
) -> list[SAWItem]:
    """Rows for rollouts whose step t carries the credit `weights[i][t]`, all its model calls alike.

    A call whose prompt extends the row so far (prompt and completions, token by token) continues
    that row; any other starts a new one. Text is never tokenised again. With `rewards`, the steps'
    rewards are attached as REWARDS.
    Raises UntrainableRollout for calls without token ids, or sampled greedily or with top_p < 1,
    whose log-probs are not those of the policy being trained.
    """
    return [
        _row(spans, rollout, rewards=rewards)
        for rollout, rollout_weights in zip(rollouts, weights, strict=True)
        for spans in _chains(_spans(rollout, rollout_weights))
    ]


def _spans(rollout: Rollout, weights: Sequence[float]) -> Iterator[_Span]:
    for step, weight in zip(rollout.steps, weights, strict=True):
        last = len(step.decision.completions) - 1
        for i, completion in enumerate(step.decision.completions):
            _require_trainable(completion, rollout)
            yield _Span(completion, weight, step.reward if i == last else 0.0)


def require_trainable(rollouts: Sequence[Rollout]) -> None:
    """Raises UntrainableRollout as `items_from` would, and where no rollout has a model call."""
    calls = 0
    for rollout in rollouts:
        for step in rollout.steps:
            for completion in step.decision.completions:
                _require_trainable(completion, rollout)
                calls += 1
    if rollouts and not calls:
        raise UntrainableRollout(
            f"none of {len(rollouts)} rollouts of {rollouts[0].task.env_id} holds a model call: "
            "play with a policy that asks a chat client"
        )


def _require_trainable(completion: Completion, rollout: Rollout) -> None:
    where = f"a completion of agent {rollout.agent!r} in {rollout.task.env_id}"
    if not completion.prompt_ids or not completion.completion_ids:
        raise UntrainableRollout(
            f"{where} has prompt_ids={completion.prompt_ids} and "
            f"completion_ids={completion.completion_ids}; "
            "train on a client that returns token ids (the embedded one, or vLLM)"
        )
    logprobs = completion.logprobs
    if logprobs is not None and len(logprobs) != len(completion.completion_ids):
        raise UntrainableRollout(
            f"{where} has {len(logprobs)} log-probs for {len(completion.completion_ids)} tokens"
        )
    sampling = completion.sampling
    if logprobs is not None and (sampling.temperature <= 0 or sampling.top_p < 1):
        raise UntrainableRollout(
            f"{where} was sampled with temperature={sampling.temperature}, top_p={sampling.top_p}; "
            "sample training data with temperature > 0 and top_p = 1"
        )


def _chains(spans: Iterable[_Span]) -> Iterator[list[_Span]]:
    chain: list[_Span] = []
    ids: tuple[int, ...] = ()
    for span in spans:
        if chain and not _continues(span.completion, chain[-1].completion, ids):
            yield chain
            chain = []
        chain.append(span)
        ids = (span.completion.prompt_ids or ()) + (span.completion.completion_ids or ())
    if chain:
        yield chain


def _continues(completion: Completion, last: Completion, ids: tuple[int, ...]) -> bool:
    prompt = completion.prompt_ids or ()
    return (
        len(prompt) > len(ids)
        and prompt[: len(ids)] == ids
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.policy_version is None) == (last.policy_version is None)
    )


def _row(spans: Sequence[_Span], rollout: Rollout, *, rewards: bool) -> SAWItem:
    last = spans[-1].completion
    ids = (last.prompt_ids or ()) + (last.completion_ids or ())
    length = len(ids)
    mask = np.zeros(length, bool)
    weight = np.zeros(length, np.float32)
    logprobs = None if last.logprobs is None else np.zeros(length, np.float32)
    versions = None if last.policy_version is None else np.full(length, -1, np.int32)
    earned = np.zeros(length, np.float32)
    for span in spans:
        call = span.completion
        start = len(call.prompt_ids or ())
        where = slice(start, start + len(call.completion_ids or ()))
        mask[where] = True
        weight[where] = span.weight
        earned[where.stop - 1] = span.reward
        if logprobs is not None:
            logprobs[where] = call.logprobs
        if versions is not None:
            known = call.versions or call.policy_version
            versions[where] = -1 if known is None else known
    return SAWItem(
        input_ids=np.asarray(ids, np.int32),
        action_mask=mask,
        weight=weight,
        behavior_logprobs=logprobs,
        versions=versions,
        temperature=last.sampling.temperature,
        group=rollout.task.group,
        agent=rollout.agent,
        attachments={REWARDS: earned} if rewards else {},
    )
