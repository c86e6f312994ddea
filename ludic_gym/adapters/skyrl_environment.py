"""SkyRLGame: a Ludic environment with the interface of SkyRL-Gym's text environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from ludic_gym.errors import ConfigError
from ludic_gym.packages import optional
from ludic_gym.rollout.pool import require_sync
from ludic_gym.types import Message


class SkyRLGame:
    """The methods that SkyRL-Gym calls: `init`, `step` and `close`.

    env_config: SkyRL's settings of the environment, which have no effect.
    extras: a row of the training data: "env_id", and optionally "kwargs", "seed", "row", and
        "max_turns", after which a game ends.
    Raises ConfigError without an "env_id".
    """

    def __init__(self, env_config: object = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = dict(extras or {})
        if "env_id" not in extras:
            raise ConfigError(f'extras must name an "env_id", got {extras!r}')
        self._env = gym.make(extras["env_id"], **extras.get("kwargs", {}))
        require_sync(self._env, "SkyRLGame")
        self._seed, self._row = extras.get("seed"), extras.get("row")
        self.max_turns: int = extras.get("max_turns", 1000)
        self.turns = 0
        self._success = 0.0

    def init(self, prompt: Sequence[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Start an episode: the first messages for the model, and the environment's info.

        prompt: messages of the training data, placed before the environment's.
        """
        options = None if self._row is None else {"row": self._row}
        observation, info = self._env.reset(seed=self._seed, options=options)
        self.turns, self._success = 0, 0.0
        system: Message = {"role": "system", "content": info["system_prompt"]}
        return [*prompt, system, {"role": "user", "content": observation}], dict(info)

    def step(self, action: str) -> dict[str, Any]:
        """Play one turn: "observations", "reward", "done", and the info as "metadata"."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        self.turns += 1
        done = terminated or truncated or self.turns >= self.max_turns
        self._success = float(info.get("success", False))
        # After the end SkyRL would put a message into the training data that no turn follows.
        messages: list[Message] = [] if done else [{"role": "user", "content": observation}]
        return {
            "observations": messages,
            "reward": float(reward),
            "done": done,
            "metadata": dict(info),
            "postprocessed_action": None,
        }

    def get_metrics(self) -> dict[str, float]:
        """The episode's success, 0 or 1, and its turns."""
        return {"success": self._success, "turns": float(self.turns)}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def skyrl_env(env_config: object = None, extras: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
    """A `SkyRLGame` that is a `skyrl_gym.envs.base_text_env.BaseTextEnv` too.

    Register it with
    `skyrl_gym.register("ludic", entry_point="ludic_gym.adapters.skyrl_environment:skyrl_env")`.
    Raises ConfigError without the package skyrl-gym.
    """
    # Made here, because the module must be importable without the package.
    base = optional("skyrl_gym.envs.base_text_env", "skyrl-gym").BaseTextEnv
    return type("LudicEnv", (SkyRLGame, base), {})(env_config, extras)
