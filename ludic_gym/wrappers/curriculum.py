"""Curriculum: harder arguments for an environment that is solved often enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from ludic_gym.envs.core.base import Info, Turn
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.types import Env


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
        if self._is_solved() and self._stage + 1 < len(self._stages):
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

    def _is_solved(self) -> bool:
        # A full window first: one success of one episode is no evidence for a rate.
        seen = self._successes
        return len(seen) == seen.maxlen and sum(seen) >= self._threshold * len(seen)

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
