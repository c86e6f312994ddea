"""WeighRewards: weights for the components of a reward."""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ludic_gym.envs.core.base import Turn
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.types import Env

_PREFIX = "reward/"


class WeighRewards(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Multiplies every component of a reward by its weight; they still sum to the reward.

    weights: by name, without "reward/".
    default: the weight of all other components; None: all must be named, so that a misspelt name
        is an error.

    >>> env = WeighRewards(gym.make("ludic/Arithmetic-v0"), {}, default=0.5)
    >>> observation, info = env.reset(seed=1)
    >>> env.step(env.unwrapped.oracle_action())[1]
    0.5
    """

    def __init__(
        self, env: Env, weights: Mapping[str, float], default: float | None = None
    ) -> None:
        # Floats and a copy, because the spec of the environment keeps them as JSON.
        weights = {name: float(weight) for name, weight in weights.items()}
        RecordConstructorArgs.__init__(self, weights=weights, default=default)
        super().__init__(env)
        self._weights = weights
        self._default = default

    def step(self, action: str) -> Turn:
        """Play a turn; the reward is the weighted sum of its components.

        Raises ConfigError for a component without a weight, EnvError for a reward without
        components.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        parts = {key: value for key, value in info.items() if key.startswith(_PREFIX)}
        # A reward of 0 needs no components: any weights would leave it 0.
        if reward and not parts:
            raise EnvError(
                f"{self.env} returned the reward {reward!r} without components to weigh; add them "
                f'to its info as "{_PREFIX}<name>"'
            )
        # The weighed components replace the old ones, so that they still sum to the reward.
        weighed = {key: self._weight(key, parts) * value for key, value in parts.items()}
        info = {**info, **weighed}
        return observation, float(sum(weighed.values())), terminated, truncated, info

    def _weight(self, key: str, parts: Mapping[str, float]) -> float:
        weight = self._weights.get(key.removeprefix(_PREFIX), self._default)
        if weight is None:
            names = ", ".join(sorted(part.removeprefix(_PREFIX) for part in parts))
            raise ConfigError(
                f"no weight for a component of the reward ({names}), only for "
                f"{', '.join(self._weights) or 'none'}; name it, or give a default"
            )
        return weight
