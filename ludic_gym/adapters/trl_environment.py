"""TRLEnvironment: a Ludic environment for TRL's `GRPOTrainer(environment_factory=...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from ludic_gym.rollout.pool import require_sync

OVER = "The game is over. There is nothing more to play."


class TRLEnvironment:
    """An environment that TRL resets for every rollout, and plays through the tool `play`.

    A row of the training data may have "seed" and "row", which select the episode. The rollouts of
    a group have one row, and so the same episode. Other columns are ignored.
    """

    # TRL offers every public method except `reset` and `get_reward` to the model as a tool.

    def __init__(self, env_id: str, **kwargs: Any) -> None:  # noqa: ANN401 (as gymnasium.make)
        self._env = gym.make(env_id, **kwargs)
        require_sync(self._env, "TRLEnvironment")
        self._over = True
        self._reward = 0.0

    def reset(self, *, seed: int | None = None, row: int | None = None, **columns: object) -> str:
        """Start an episode: the system prompt and the first observation, for the user message."""
        options = None if row is None else {"row": row}
        observation, info = self._env.reset(seed=seed, options=options)
        self._over, self._reward = False, 0.0
        return f"{info['system_prompt']}\n\n{observation}"

    def play(self, action: str) -> str:
        """Make your move, or give your answer.

        Args:
            action: The move or the answer, in the form that the task asks for.

        Returns:
            What happens next.
        """
        # A model may call the tool again in the same reply; that must not raise.
        if self._over:
            return OVER
        observation, reward, terminated, truncated, _ = self._env.step(action)
        self._reward += float(reward)
        self._over = terminated or truncated
        return f"{observation}\n{OVER}".strip() if self._over else observation

    def get_reward(self) -> float:
        """The sum of the episode's rewards so far."""
        return self._reward


def trl_environment(env_id: str, **kwargs: Any) -> Callable[[], TRLEnvironment]:  # noqa: ANN401
    """A factory for TRL: `environment_factory=trl_environment("ludic/...")`.

    env_id, kwargs: arguments of `gymnasium.make`.

        make = trl_environment("ludic/GuessTheNumber-v0")
        trainer = GRPOTrainer(..., environment_factory=make)
    """
    return lambda: TRLEnvironment(env_id, **kwargs)
