"""TurnLimit: truncation after some turns, by the contract of text environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ludic_gym.envs.core.base import Info, Turn
from ludic_gym.errors import ConfigError
from ludic_gym.types import Env


class TurnLimit(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Truncates an episode with its `max_turns`-th turn, unless that turn ends it.

    Unlike `gymnasium.wrappers.TimeLimit`, it keeps the contract of text environments: the info of
    such a turn has the reason, and the keys of every last info, see `cut_short`.
    Raises ConfigError for a limit below 2: an episode of one turn terminates.

    >>> env = TurnLimit(gym.make("ludic/GuessTheNumber-v0"), max_turns=2)
    >>> observation, info = env.reset(seed=1)
    >>> [env.step("1")[3] for _ in range(2)]
    [False, True]
    """

    def __init__(self, env: Env, max_turns: int) -> None:
        RecordConstructorArgs.__init__(self, max_turns=max_turns)
        # 1 is refused: the contract has a last turn of a single-turn environment terminate.
        if not isinstance(max_turns, int) or max_turns < 2:
            raise ConfigError(f"max_turns is an int of at least 2, got {max_turns!r}")
        super().__init__(env)
        self._max_turns = max_turns
        self._turns = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode and count from zero."""
        self._turns = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> Turn:
        """Play a turn, and truncate the episode at the limit."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._turns += 1
        if self._turns >= self._max_turns and not (terminated or truncated):
            truncated, info = True, cut_short(info, float(reward), "max_turns")
        return observation, float(reward), terminated, truncated, info


def cut_short(info: Mapping[str, Any], reward: float, reason: str) -> Info:
    """The info of a last turn that is truncated from outside the environment.

    "success" is False, "truncation_reason" the reason. A reward without components becomes the
    component "reward/unfinished".

    >>> cut_short({}, 0.5, "max_turns")
    {'reward/unfinished': 0.5, 'success': False, 'truncation_reason': 'max_turns'}
    """
    # The contract requires components that sum to the reward.
    explained = any(key.startswith("reward/") for key in info)
    parts = {} if explained else {"reward/unfinished": reward}
    return {**info, **parts, "success": False, "truncation_reason": reason}
