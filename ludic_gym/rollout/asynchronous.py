"""Environments whose `reset` and `step` are coroutine functions."""

from __future__ import annotations

from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from ludic_gym.errors import EnvError

AnyEnv = gym.Env[Any, Any]


def is_async(env: AnyEnv) -> bool:
    """True if `reset` or `step` of the innermost env is a coroutine function, or it says so.

    The attribute `asynchronous` says so, which a TextEnv sets where its hooks are coroutines.

    >>> is_async(gym.make("ludic/Nim-v0"))
    False
    """
    # mypy takes the `__hash__` of instances for that of the class.
    return _has_coroutines(type(env.unwrapped))  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _has_coroutines(kind: type[AnyEnv]) -> bool:
    # By class and kept, because every episode needs it. TextEnv itself is not imported here:
    # commands that play nothing load this file.
    says_so: object = getattr(kind, "asynchronous", False)
    return says_so is True or any(map(iscoroutinefunction, (kind.reset, kind.step)))


def require_sync(env: AnyEnv, user: str) -> None:
    """Raise EnvError for an asynchronous env. user: what would call it, for the message."""
    if is_async(env):
        raise EnvError(
            f"{user} cannot await {env}, whose methods are coroutines; play it with run_episodes, "
            "run_episode or evaluate, or write its methods without async and set "
            'metadata["blocking"]'
        )


def awaitable_env(env: AnyEnv) -> AnyEnv:
    """The env; an asynchronous one without Gymnasium's checker, which cannot await.

    Raises EnvError for an asynchronous env inside another wrapper of Gymnasium that reads results.
    """
    if not is_async(env):
        return env
    while isinstance(env, PassiveEnvChecker):
        env = env.env
    wrapper = env
    while isinstance(wrapper, gym.Wrapper):
        if isinstance(wrapper.env, PassiveEnvChecker):
            wrapper.env = wrapper.env.env
            continue
        own = type(wrapper)
        foreign = own.__module__.startswith("gymnasium.") and own is not OrderEnforcing
        if foreign and (own.step is not gym.Wrapper.step or own.reset is not gym.Wrapper.reset):
            raise EnvError(
                f"{own.__name__} cannot await {env.unwrapped}, whose methods are coroutines; "
                "register it without max_episode_steps and further wrappers, and limit its turns "
                "by Task(max_turns=...)"
            )
        wrapper = wrapper.env
    return env
