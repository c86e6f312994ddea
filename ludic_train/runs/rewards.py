"""Rewards of a run's own, in place of the environment's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, SupportsFloat

from ludic_gym.concurrency import WorkerThread, result_of
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.graders.rubric import Rubric, graded_rollout
from ludic_gym.packages import import_user_module
from ludic_gym.types import Rollout
from ludic_train.sources.rollouts import Score

Reward = Callable[[Rollout], Any] | Rubric
"""A rubric, or a function from a finished rollout to its reward; the function may be async.

One that is not runs on a thread of its own, a rollout after the other.
"""


def score_of(reward: str | Reward) -> Score:
    """A function that gives rollouts their rewards.

    reward: "module:name" of a function or a rubric, or one of these.
    Raises ConfigError for a name without a function or a rubric behind it.
    """
    function: Any = reward
    if isinstance(reward, str):
        module, _, name = reward.rpartition(":")
        function = getattr(import_user_module(module, reward), name, None) if module else None
    if isinstance(function, Rubric):
        rubric = function

        async def graded(rollout: Rollout) -> Rollout:
            return await graded_rollout(rollout, rubric)

        return graded
    if not callable(function):
        raise ConfigError(
            f"reward={reward!r} is neither a function, a Rubric, nor module:name of one"
        )

    thread = WorkerThread("ludic-reward")

    async def scored(rollout: Rollout) -> Rollout:
        # The function may call a server, for which no episode has to wait.
        value = await result_of(await thread.run(partial(function, rollout)))
        return rewarded(rollout, value)

    return scored


def rewarded(rollout: Rollout, reward: SupportsFloat) -> Rollout:
    """The rollout with `reward` at its last step, in place of all rewards of the environment.

    reward: a number, a NumPy scalar or a tensor of one element.
    What its parser gave for the form of replies stays.
    Raises EnvError for a reward that is no finite number.

    >>> from ludic_gym import Decision, Step, Task
    >>> steps = [Step(observation="", decision=Decision(action=a), reward=1.0) for a in "ab"]
    >>> played = Rollout(task=Task(env_id="ludic/Maze-v0"), steps=tuple(steps))
    >>> [step.reward for step in rewarded(played, 0.25).steps]
    [0.0, 0.25]
    """
    value = float(reward) if isinstance(reward, SupportsFloat) else math.nan
    if not math.isfinite(value):
        raise EnvError(f"a reward function returned {reward!r}, which is no finite number")
    steps = [replace(step, reward=step.decision.reward) for step in rollout.steps]
    if steps:
        steps[-1] = replace(steps[-1], reward=steps[-1].reward + value)
    return replace(rollout, steps=tuple(steps))
