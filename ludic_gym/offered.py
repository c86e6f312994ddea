"""Tools, schemas of actions that are calls, and legal actions of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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


def legal_actions(env: object) -> tuple[str, ...]:
    """The legal actions of the environment now, as texts; () where any text is one.

    By its `legal_actions`, of a wrapper or of the environment itself: a method, or a sequence.

    >>> env = gym.make("ludic/TicTacToe-v0")
    >>> observation, info = env.reset(seed=1)
    >>> legal_actions(env)[:3]
    ('A1', 'A2', 'A3')
    """
    layer: Any = env
    while True:
        # Python's own test of a protocol takes as long as a turn of a game.
        try:
            legal = layer.legal_actions
            break
        except AttributeError:
            if not isinstance(layer, gym.Wrapper):
                return ()
            layer = layer.env
    return tuple(map(str, legal() if callable(legal) else legal))
