"""Rollouts, trajectories and weights made by hand."""

from dataclasses import replace

import numpy as np

from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.algorithms.presets import sft
from ludic_train.types import Trajectory

TASK = Task(env_id="ludic/X-v0", group="g")
USUAL = Sampling()


def trajectory(*rewards, tokens=1, cut=False, parsed=True, **facts):
    """A trajectory of these rewards, with one completion of `tokens` tokens per step, no rows."""
    steps = len(rewards)
    completions = [(step, tokens, cut) for step in range(steps)]
    given = {"env_id": "ludic/X-v0", "group": "g", **facts}
    return Trajectory(
        rows=(),
        rewards=np.array(rewards, np.float64),
        parsed=np.full(steps, parsed),
        completions=np.array(completions, np.int32).reshape(-1, 3),
        **given,
    )


def plain(weights):
    """Weights as lists."""
    return [own.tolist() for own in weights]


def call(prompt, sampled, *, version=0, sampling=USUAL, logprobs="auto"):
    """A model call; log-probs are -0.1, -0.2 and so on, unless they are given."""
    auto = tuple(-0.1 * (i + 1) for i in range(len(sampled)))
    return Completion(
        text="",
        finish_reason="stop",
        sampling=sampling,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(sampled),
        logprobs=auto if logprobs == "auto" else logprobs,
        policy_version=version,
    )


def rollout(*steps, rewards=(), task=TASK, truncated=False, info=(), agent="agent"):
    """A rollout of steps that are tuples of calls; rewards are 0 where none are given."""
    rewards = rewards or [0.0] * len(steps)
    made = [
        Step(observation="o", decision=Decision(action="a", completions=calls), reward=reward)
        for calls, reward in zip(steps, rewards, strict=True)
    ]
    if made:
        end = {"truncated": truncated, "terminated": not truncated, "info": dict(info)}
        made[-1] = replace(made[-1], **end)
    return Rollout(task=task, steps=tuple(made), agent=agent)


def weighted(*weights, **parts):
    """An algorithm that gives rollout i the weights `weights[i]`, one per step."""
    return sft(credit=lambda trajectories: [np.array(w, np.float64) for w in weights], **parts)


def one_row_per_step(merged):
    """The trajectory with a row per step, as of a context that repeats all tokens before."""
    rows = (row for whole in merged.rows for row in _by_step(whole))
    return replace(merged, rows=tuple(rows))


def _by_step(row):
    for step in np.unique(row.steps[row.action_mask]):
        own = row.steps == step
        end = int(np.flatnonzero(own)[-1]) + 1
        streams = {"behavior_logprobs": 0, "versions": -1, "steps": -1}
        cut = {name: np.where(own, getattr(row, name), off)[:end] for name, off in streams.items()}
        yield replace(
            row,
            input_ids=row.input_ids[:end],
            action_mask=own[:end],
            weight=row.weight[:end],
            **{name: array.astype(getattr(row, name).dtype) for name, array in cut.items()},
        )
