"""Environments of ids and of functions, with texts for observations and actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludic_gym.types import Env

_ids: dict[Callable[[], Env], str] = {}


def make_env(env_id: str | EnvSpec, **kwargs: Any) -> Env:  # noqa: ANN401 (as gymnasium.make)
    """The environment of an id, as `gymnasium.make` makes it; one of numbers by `as_text`.

    >>> env = make_env("FrozenLake-v1", is_slippery=False)
    >>> observation, info = env.reset(seed=1)
    >>> print(env.step("right")[0].splitlines()[1])
    S@FF
    """
    env: gym.Env[Any, Any] = gym.make(env_id, **kwargs)
    # Imported here: commands that play nothing load this file.
    from ludic_gym.adapters.numeric_env import as_text, is_numeric

    if not is_numeric(env):
        return env
    if "ansi" in env.metadata.get("render_modes", ()) and "render_mode" not in kwargs:
        env.close()
        env = gym.make(env_id, render_mode="ansi", **kwargs)
    return as_text(env)


def env_id_of(env: str | Callable[[], Env]) -> str:
    """The id itself; of a function, the id under which it is registered, always the same.

    >>> env_id_of("ludic/Maze-v0"), env_id_of(lambda: gym.make("ludic/Maze-v0"))
    ('ludic/Maze-v0', 'python/env-v0')
    """
    if isinstance(env, str):
        return env
    if env not in _ids:
        name = re.sub(r"\W", "", getattr(env, "__name__", "")) or "env"
        name = "env" if "lambda" in name else name
        number = sum(1 for other in _ids.values() if other.startswith(f"python/{name}-v"))
        _ids[env] = f"python/{name}-v{number}"
        # Gymnasium's type asks for keywords, which this one refuses.
        creator = cast(Any, env)
        gym.register(_ids[env], creator, order_enforce=False, disable_env_checker=True)
    return _ids[env]
