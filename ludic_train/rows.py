"""State-Action-Weight rows: what a trainer learns from, in exactly the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ludic_gym.errors import EpisodeError
from ludic_gym.types import Completion, Episode, Rollout
from ludic_train.errors import UntrainableRollout
from ludic_train.metrics import Metrics, Stat, Total
from ludic_train.types import REWARDS, SAWItem


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


# A source whose filters leave nothing this often in a row will not recover by playing on.
EMPTY_BATCHES_ALLOWED = 20


def survivors(episodes: Sequence[Episode], group_size: int) -> list[Rollout]:
    """The rollouts of the episodes that did not fail, without groups of one survivor.

    Raises EpisodeError, with the first failure, where more than half failed.
    """
    failed = [episode for episode in episodes if episode.error is not None]
    if len(failed) > len(episodes) / 2:
        raise EpisodeError(
            f"{len(failed)} of {len(episodes)} episodes failed; the first: {failed[0].error}"
        )
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    if group_size == 1 or not failed:
        return rollouts
    sizes: dict[str, int] = {}
    for rollout in rollouts:
        sizes[rollout.task.group] = sizes.get(rollout.task.group, 0) + 1
    return [rollout for rollout in rollouts if sizes[rollout.task.group] >= 2]


def episode_metrics(episodes: Sequence[Episode]) -> Metrics:
    """What is worth logging about episodes, the failed ones included."""
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    steps = [step for rollout in rollouts for step in rollout.steps]
    ends = [rollout.steps[-1].info for rollout in rollouts if rollout.steps]
    calls = [call for step in steps for call in step.decision.completions]
    return {
        "reward": Stat.of([rollout.total_reward for rollout in rollouts]),
        "success": Stat.of([float(info["success"]) for info in ends if "success" in info]),
        "turns": Stat.of([len(rollout.steps) for rollout in rollouts]),
        "tokens/completion": Stat.of([len(call.completion_ids or ()) for call in calls]),
        "tokens/sampled": Total(sum(len(call.completion_ids or ()) for call in calls)),
        "episodes/failed": Stat.of([float(episode.error is not None) for episode in episodes]),
        "episodes": Total(len(episodes)),
    }
