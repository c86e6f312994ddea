"""TurnLimit, WeighRewards and Curriculum: limits, rewards and harder arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ludic_gym.envs.core.base import Info, Turn
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.types import Env

_PREFIX = "reward/"


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


class CurriculumState(TypedDict):
    """State of a curriculum: its stage, and the last successes in that stage."""

    stage: int
    successes: list[bool]


class Curriculum(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Replaces the environment by one with the arguments of the next stage, once it is solved.

    stages: arguments of the environment in each stage; the last stage never ends.
    threshold: success rate over the last `window` episodes at which a stage ends.
    The info of the first and the last turn has "stage", from 0. Copies, pickles and `state()` keep
    the progress. All stages share one random generator.
    Raises ConfigError for an environment that was not made by `gymnasium.make`, without stages, and
    for an impossible threshold or window.

    >>> env = gym.make("ludic/Arithmetic-v0")
    >>> env = Curriculum(env, [{"digits": 1}, {"digits": 2}], window=1)
    >>> for seed in range(2):
    ...     observation, info = env.reset(seed=seed)
    ...     _ = env.step(env.unwrapped.oracle_action())
    >>> env.stage
    1
    """

    def __init__(
        self,
        env: Env,
        stages: Sequence[Mapping[str, Any]],
        *,
        threshold: float = 0.8,
        window: int = 50,
    ) -> None:
        stages = [dict(stage) for stage in stages]
        RecordConstructorArgs.__init__(self, stages=stages, threshold=threshold, window=window)
        if env.spec is None:
            raise ConfigError(f"{env} has no spec to be made again from; make it by gymnasium.make")
        if not stages or not 0 < threshold <= 1 or window < 1:
            raise ConfigError(
                "a curriculum has at least one stage, a threshold over 0 and up to 1, and a window "
                f"of at least 1, got {stages!r}, {threshold!r}, {window!r}"
            )
        super().__init__(env)
        self._spec = env.spec
        self._stages = stages
        self._threshold = threshold
        self._stage = 0
        self._successes: deque[bool] = deque(maxlen=window)
        self._enter(0)

    @property
    def stage(self) -> int:
        """Index of the current stage."""
        return self._stage

    def state(self) -> CurriculumState:
        """The progress, for `restore`; JSON can hold it, as a trainer's checkpoint does."""
        return {"stage": self._stage, "successes": list(self._successes)}

    def restore(self, state: CurriculumState) -> None:
        """Continue from a state at the next reset. Raises ConfigError for an unknown stage."""
        if not 0 <= state["stage"] < len(self._stages):
            raise ConfigError(f"stage is from 0 to {len(self._stages) - 1}, got {state['stage']!r}")
        self._enter(state["stage"])
        self._successes.extend(state["successes"])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode, in the next stage if this one is solved; the info has "stage"."""
        # At the reset and not at the end of the episode, whose env is still in use.
        # A full window first: one success of one episode is no evidence for a rate.
        seen = self._successes
        solved = len(seen) == seen.maxlen and sum(seen) >= self._threshold * len(seen)
        if solved and self._stage + 1 < len(self._stages):
            self._enter(self._stage + 1)
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "stage": self._stage}

    def step(self, action: str) -> Turn:
        """Play a turn, and count a success, except of an episode that failed.

        Raises EnvError for a last info without "success".
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            if "success" not in info:
                raise EnvError(f'{self.env} has no info["success"] at the end: {info!r}')
            # A sandbox or a judge that is down says nothing about the stage.
            if not info.get("error"):
                self._successes.append(bool(info["success"]))
            info = {**info, "stage": self._stage}
        return observation, float(reward), terminated, truncated, info

    def _enter(self, stage: int) -> None:
        # Made before the old one is closed: arguments that cannot work leave this stage playable.
        env: Env = self._spec.make(**self._stages[stage])
        # One generator for all stages, so that the first seed determines every later episode.
        env.unwrapped.np_random = self.env.unwrapped.np_random
        self.env.close()
        self.env = env
        self._stage = stage
        # Successes in an easier stage say nothing about this one.
        self._successes.clear()
