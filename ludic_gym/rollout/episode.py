"""run_episode: one episode of one agent in a Gymnasium env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.policies.base import FinishingPolicy, end_episode
from ludic_gym.rollout.pool import awaitable_env, call
from ludic_gym.sampling import turn_sampling
from ludic_gym.types import Decision, Env, Policy, Rollout, Step, Task

MAX_TURNS = "max_turns"
PARSE_ERROR = "parse_error"
CUT_OFF = "cut_off"
# Replies without an action, one after the other, that end an episode of several turns.
ATTEMPTS = 3
# Rewards of a batch are added up and squared, which float32 must hold.
LARGEST_REWARD = 1e15


async def run_episode(env: Env, policy: Policy, task: Task) -> Rollout:
    """Play `task` to its end; `env` was made for the task's env_id and kwargs.

    For a decision without an action the env is not stepped: the step has the decision's reward and
    the info {"parse_error": True}, also "cut_off" for a reply that reached its limit of tokens, and
    the feedback is the next observation. The last of the task's `attempts` ends the episode:
    terminated, with info["termination_reason"] "parse_error" or "cut_off", "success" False, the
    other facts of the env's latest info, and the env's `forfeit_reward`.
    The last of `max_turns` turns is truncated, with info["truncation_reason"] "max_turns"; so is
    one with a `give_up`, with that reason.
    An env whose `reset` and `step` are coroutine functions is awaited. A `FinishingPolicy` ends the
    rollout itself, and is aborted by an error.
    Raises the errors of the env and the policy, EnvError for an observation that is no text or a
    reward that is nan or infinite, and ConfigError for a limit of no turns or no attempts.

    >>> import asyncio
    >>> import gymnasium as gym
    >>> from ludic_gym import OraclePolicy
    >>> env = gym.make("ludic/Arithmetic-v0")
    >>> task = Task(env_id="ludic/Arithmetic-v0", seed=1)
    >>> asyncio.run(run_episode(env, OraclePolicy(env), task)).total_reward
    1.0
    """
    if not isinstance(policy, FinishingPolicy):
        return await _rollout(env, policy, task)
    try:
        return await policy.finish(await _rollout(env, policy, task))
    except BaseException:
        await policy.abort()
        raise


async def _rollout(env: Env, policy: Policy, task: Task) -> Rollout:
    """The turns of the task, to its end."""
    options, env = copied_options(task), awaitable_env(env)
    observation, info = await call(env, env.reset, seed=task.seed, options=options)
    policy.reset(info.get("system_prompt", ""))
    failures, attempts = 0, attempts_of(env, task)
    facts: Mapping[str, Any] = info
    steps: list[Step] = []
    while not (steps and (steps[-1].terminated or steps[-1].truncated)):
        seen, turn = text_of(observation, env), len(steps)
        policy.observe(seen)
        # A seed per turn: with one seed for all, a model could repeat itself in a loop.
        decision = await policy.act(turn_sampling(task.sampling, turn))
        failures = failures + 1 if decision.action is None else 0
        if failures == attempts and not decision.give_up:
            # The env's latest facts name the row, which a result of the episode needs too.
            last_facts = {key: value for key, value in facts.items() if key != "system_prompt"}
            failed = _failed(decision)
            reason = CUT_OFF if CUT_OFF in failed else PARSE_ERROR
            ending = {**failed, "success": False, "termination_reason": reason}
            step = Step(
                observation=seen,
                decision=decision,
                reward=finite_reward(decision.reward + _forfeit_reward(env)),
                terminated=True,
                info={**last_facts, **ending},
            )
            steps.append(step)
            observation = decision.feedback
            break
        step, observation = await _played(env, seen, decision, turn + 1 == task.max_turns)
        facts = facts if decision.action is None else step.info
        steps.append(step)
    end_episode(policy)
    return Rollout(task=task, steps=tuple(steps), final_observation=text_of(observation, env))


async def _played(env: Env, seen: str, decision: Decision, is_last: bool) -> tuple[Step, str]:
    """The step of this decision, and the observation after it.

    seen: the observation that the decision is about. is_last: True if no further turn is allowed.
    """
    reward, terminated, truncated, info = decision.reward, False, False, dict[str, Any]()
    if decision.action is None:
        after, info = decision.feedback, _failed(decision)
    else:
        after, earned, terminated, truncated, info = await call(env, env.step, decision.action)
        # Plain values and a copy: envs return NumPy scalars, and may fill the same dict each turn.
        reward, info = reward + float(earned), dict(info)
    # The end that the env found counts first: a game won with the last turn is won.
    reason = decision.give_up or (MAX_TURNS if is_last else "")
    if reason and not (terminated or truncated):
        truncated, info = True, truncated_info(info, reason)
    step = Step(
        observation=seen,
        decision=decision,
        reward=finite_reward(reward),
        terminated=terminated,
        truncated=truncated,
        info=info,
    )
    return step, after


def _failed(decision: Decision) -> dict[str, Any]:
    """The info of a decision without an action."""
    return {PARSE_ERROR: True, CUT_OFF: True} if decision.cut_off else {PARSE_ERROR: True}


def _forfeit_reward(env: Env) -> float:
    """Reward of an episode that ends without an action: the env's own, else 0."""
    try:
        return float(env.get_wrapper_attr("forfeit_reward"))
    except AttributeError:
        return 0.0


def attempts_of(env: Env, task: Task) -> int:
    """Number of parse failures in a row that end the episode: the task's, else the env's.

    Raises ConfigError for a number below 1.
    """
    if task.attempts is None:
        return 1 if is_single_turn(env) else ATTEMPTS
    if not isinstance(task.attempts, int) or task.attempts < 1:
        raise ConfigError(
            f"attempts is an int of at least 1, or None for the env's own number, got "
            f"{task.attempts!r} for {task.env_id}"
        )
    return task.attempts


def is_single_turn(env: Env) -> bool:
    """True if an episode of the env is one question and one answer.

    Such an env, or a wrapper of it, has the attribute `single_turn` of `TextEnv`, or is registered
    with max_episode_steps=1.
    Raises EnvError for an attribute that is no bool.
    """
    try:
        single_turn = env.get_wrapper_attr("single_turn")
    except AttributeError:
        return env.spec is not None and env.spec.max_episode_steps == 1
    if not isinstance(single_turn, bool):
        raise EnvError(
            f"single_turn of {env} is {single_turn!r}; make it True if an episode is one question "
            "and one answer, else False"
        )
    return single_turn


def truncated_info(info: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The info of a step that is truncated for a reason outside the env, as a new dict.

    >>> truncated_info({"turn": 3}, MAX_TURNS)
    {'turn': 3, 'truncation_reason': 'max_turns'}
    """
    return {**info, "truncation_reason": reason}


def text_of(observation: object, env: object) -> str:
    """The observation itself, as a plain string. Raises EnvError if it is no text.

    env: named in the message.
    """
    if not isinstance(observation, str):
        raise EnvError(
            f"{env} returned a {type(observation).__name__}, not text; wrap it, for instance in "
            "gymnasium.wrappers.TransformObservation"
        )
    # Subclasses of str, as PettingZoo's `api_test` requires, would not be recorded as they are.
    return str(observation)


def finite_reward(reward: float) -> float:
    """The reward itself. Raises EnvError for nan, infinities and what float32 could not add up."""
    if not abs(reward) <= LARGEST_REWARD:
        raise EnvError(
            f"a turn earned {reward}; let the env and the parser give finite rewards, at most "
            f"{LARGEST_REWARD:g} in size"
        )
    return reward


def copied_options(task: Task) -> dict[str, Any] | None:
    """The options for `reset`, which the env may keep. Raises ConfigError for no turns at all."""
    if task.max_turns < 1:
        raise ConfigError(f"max_turns is at least 1, got {task.max_turns} for {task.env_id}")
    return None if task.options is None else dict(task.options)
