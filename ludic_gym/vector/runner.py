"""Runner: one environment whose failures are results, and which is made again after one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from ludic_gym.concurrency import Caught, closing_error

Info = dict[str, Any]
AnyEnv = gym.Env[Any, Any]


class Arrival(NamedTuple):
    """Result of one environment's reset (reward 0, nothing ended) or step.

    A failed environment is truncated, with its last observation, the reward 0, and the info
    {"error": the exception, "success": False}. It is made again for the next episode.

    env_id: index of the environment.
    observation, reward, terminated, truncated, info: as `reset` and `step` return them.
    """

    env_id: int
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Info


# An arrival without its names, which is made in a fifth of the time.
Fields = tuple[int, Any, float, bool, bool, Info]


class Runner:
    """Player of one environment, whose methods raise nothing.

    env_id: index of the environment in its results.
    make: makes the environment again after a failure.
    mode: in SAME_STEP mode, the last turn of an episode is followed by a reset at once.
    env: None after a failure, until the next reset makes another one.
    over: True if there is no running episode.
    started: True if there has ever been one.
    blank: the observation of an environment that failed before its first one.
    """

    def __init__(
        self,
        env_id: int,
        make: Callable[[], AnyEnv],
        *,
        env: AnyEnv | None = None,
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        blank: object = "",
    ) -> None:
        self.env_id = env_id
        self.env = env
        self.over = True
        self.started = False
        self._make = make
        self._blank = blank
        self._seen = blank
        self._resets_at_once = mode is AutoresetMode.SAME_STEP

    def reset(self, seed: int | None = None, options: Info | None = None) -> Arrival:
        """Start an episode, in a new environment after a failure; the result, or the failure."""
        self.started = True
        # Any error of an environment ends its own episode and no other.
        with Caught(Exception) as failure:
            if self.env is None:
                self.env = self._make()
            self._seen, info = self.env.reset(seed=seed, options=options)
            self.over = False
            return Arrival(self.env_id, self._seen, 0.0, False, False, info)
        return self.failure(failure.text)

    def step(self, action: object) -> Arrival:
        """Play a turn; after the end of an episode reset instead, ignoring the action."""
        with Caught(Exception) as failure:
            return Arrival._make(self.turn(action))
        return self.failure(failure.text)

    def turn(self, action: object) -> Fields:
        """As `step`, but raises the errors of the environment, after which `failure` is due."""
        env = self.env
        if env is None:
            return self.reset()
        if self.over:
            self._seen, info = env.reset()
            self.over = False
            return self.env_id, self._seen, 0.0, False, False, info
        observation, reward, terminated, truncated, info = env.step(action)
        reward = float(reward)
        self._seen = observation
        if terminated or truncated:
            self.over = True
            if self._resets_at_once:
                last = Arrival(self.env_id, observation, reward, terminated, truncated, info)
                return self._restarted(last)
        return self.env_id, observation, reward, terminated, truncated, info

    def failure(self, error: str) -> Arrival:
        """The end of an episode that failed; the environment is closed and not used again.

        error: class and message of the exception, for info["error"].
        """
        # `over` and `started`, so that the next action starts an episode as after any other end.
        env, self.env, self.over, self.started = self.env, None, True, True
        if env is not None:
            error += closing_error(env.close)
        info = {"error": error, "success": False}
        # The space must hold the observation, so the last valid one is repeated.
        seen, self._seen = self._seen, self._blank
        return Arrival(self.env_id, seen, 0.0, False, True, info)

    def _restarted(self, last: Arrival) -> Arrival:
        """The first turn of the next episode, with the end of the last one in its info."""
        final = {"final_obs": last.observation, "final_info": last.info}
        first = self.reset()
        return last._replace(observation=first.observation, info={**final, **first.info})


def turns(runners: Sequence[Runner], actions: Iterable[object]) -> list[Fields]:
    """A turn of every runner in order, as `Runner.step` plays it."""
    arrivals: list[Fields] = []
    left = zip(runners, actions, strict=True)
    # One block for all turns up to a failure, since most have none.
    while len(arrivals) < len(runners):
        with Caught(Exception) as failure:
            for runner, action in left:
                arrivals.append(runner.turn(action))
        if failure.error is not None:
            arrivals.append(runners[len(arrivals)].failure(failure.text))
    return arrivals
