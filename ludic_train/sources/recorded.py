"""Rows of rollouts that were played before: by this model, another, a script, a human."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ludic_gym.types import Completion, Rollout, Sampling
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import EmptyBatch
from ludic_train.rows import items_from
from ludic_train.types import REWARDS, SAWItem

# Such as `lambda rollout: with_token_ids(rollout, tokenizer, FullDialog())`.
Render = Callable[[Rollout], Rollout]


def recorded_items(
    rollouts: Iterable[Rollout], algo: RLAlgorithm, *, render: Render | None = None
) -> list[SAWItem]:
    """Rows for an OfflineBatchSource: the rollouts that `algo` keeps, with its credit.

        rollouts = read_rollouts("results/ludic.jsonl")
        items = recorded_items(rollouts, make_rejection_sampling())

    Recorded tokens are taken as they are, so the model must have the tokenizer of the one that was
    recorded; `render` makes those of rollouts without. Their versions count the updates of another
    run, and are left out. Log-probs stay where they are of the policy's own distribution
    (temperature above 0, top_p 1); losses that need them refuse rows without.
    Raises EmptyBatch where the algorithm keeps nothing, and UntrainableRollout for rollouts without
    tokens and `render`.
    """
    known = [_with_tokens(rollout, render) for rollout in rollouts]
    kept = algo.preprocess(known) if algo.preprocess else known
    if not kept:
        raise EmptyBatch(
            f"{algo.name} keeps none of {len(known)} recorded rollouts; the best earned "
            f"{max((r.total_reward for r in known), default=float('nan')):.3g}"
        )
    weights = algo.credit_assigner(kept)
    return items_from(kept, weights, rewards=REWARDS in algo.attach)


def _with_tokens(rollout: Rollout, render: Render | None) -> Rollout:
    calls = [call for step in rollout.steps for call in step.decision.completions]
    if render is not None and not (calls and all(call.completion_ids for call in calls)):
        return render(rollout)
    steps = [
        replace(
            step,
            decision=replace(
                step.decision, completions=tuple(map(_recorded, step.decision.completions))
            ),
        )
        for step in rollout.steps
    ]
    return replace(rollout, steps=tuple(steps))


def _recorded(call: Completion) -> Completion:
    """The call without what means nothing in another run."""
    if call.sampling.temperature > 0 and call.sampling.top_p == 1:
        return replace(call, policy_version=None)
    # Greedy and nucleus sampling have log-probs of another distribution than the policy's.
    sampling: Sampling = replace(call.sampling, temperature=1.0, top_p=1.0)
    return replace(call, policy_version=None, logprobs=None, sampling=sampling)
