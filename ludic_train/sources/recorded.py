"""Rollouts that were played before: by this model, another one, a script, a human."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ludic_gym.types import Completion, Rollout

# Such as `lambda rollout: with_token_ids(rollout, tokenizer, FullDialog())`.
Render = Callable[[Rollout], Rollout]


def recorded_rollouts(
    rollouts: Iterable[Rollout], *, render: Render | None = None
) -> list[Rollout]:
    """Rollouts of another run, fit to be learned from by an `OfflineBatchSource`.

        rollouts = recorded_rollouts(read_rollouts("results/ludic.jsonl"))
        source = OfflineBatchSource(rollouts, batch_size=32)

    Recorded tokens are taken as they are, so the model must have the tokenizer of the one that was
    recorded; `render` makes those of rollouts without. Their versions count the updates of another
    run, and are left out. Log-probs stay where they are of the policy's own distribution
    (temperature above 0, top_p 1); losses that need them refuse rows without.
    """
    return [_with_tokens(rollout, render) for rollout in rollouts]


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
    """The call without facts that mean nothing in another run."""
    if call.sampling.temperature > 0 and call.sampling.top_p == 1:
        return replace(call, policy_version=None, versions=None)
    # Greedy and nucleus sampling have log-probs of another distribution than the policy's.
    sampling = replace(call.sampling, temperature=1.0, top_p=1.0)
    return replace(call, policy_version=None, versions=None, logprobs=None, sampling=sampling)
