"""Tools of an environment, and schemas of its actions that are function calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import gymnasium as gym

from ludic_gym.types import Env, ToolSchema

if TYPE_CHECKING:
    from ludic_gym.tools.tool import Tool


def env_tools(env: Env | None) -> Sequence[Tool | Callable[..., object]]:
    """The tools of the environment; none for one without the method `tools`."""
    if not isinstance(env, gym.Env) or not env.has_wrapper_attr("tools"):
        return ()
    return tuple(env.get_wrapper_attr("tools")())


def action_schemas(env: Env | None) -> Sequence[ToolSchema]:
    """Schemas of the functions that are actions of the environment now; () if any text is one."""
    if not isinstance(env, gym.Env) or not env.has_wrapper_attr("action_tools"):
        return ()
    return tuple(env.get_wrapper_attr("action_tools"))
