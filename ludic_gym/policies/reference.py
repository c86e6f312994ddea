"""Policies without a model: scripted, random, oracle, human, replay."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from ludic_gym.errors import ConfigError, EnvError, NoOracle, ScriptExhausted
from ludic_gym.policies.base import PlainCall
from ludic_gym.sampling import derived_seed
from ludic_gym.types import Decision, Rollout, Sampling


class Unwraps(Protocol):
    """Any Gymnasium or PettingZoo env."""

    @property
    def unwrapped(self) -> Any:  # noqa: ANN401
        """The env below all wrappers."""


@runtime_checkable
class KnowsLegalActions(Protocol):
    """An env that can tell what is allowed now; nothing at all means that any text is."""

    def legal_actions(self) -> tuple[str, ...]:
        """The allowed actions."""


@runtime_checkable
class KnowsBestAction(Protocol):
    """An env that can tell a best action."""

    def oracle_action(self) -> str:
        """A best action for the present state."""


class ScriptedPolicy(PlainCall):
    """Plays the actions in order, from the first in every episode."""

    def __init__(self, actions: Iterable[str]) -> None:
        self._actions = tuple(actions)
        self._turn = 0

    def reset(self, system_prompt: str) -> None:
        """Start from the first action."""
        self._turn = 0

    def observe(self, text: str) -> None:
        """Nothing that is seen changes the script."""

    async def act(self, sampling: Sampling) -> Decision:
        """The next action. Raises ScriptExhausted when there is none."""
        if self._turn == len(self._actions):
            raise ScriptExhausted(f"all {self._turn} scripted actions are played; give more")
        self._turn += 1
        return Decision(action=self._actions[self._turn - 1])


class RandomPolicy(PlainCall):
    """Draws from the env's legal actions, or from its action space where any text is legal.

    The draw follows from the sampling seed; without one it is a new one every time.
    """

    def __init__(self, env: Unwraps) -> None:
        self._env = env.unwrapped

    def reset(self, system_prompt: str) -> None:
        """Nothing is kept between turns."""

    def observe(self, text: str) -> None:
        """What is seen does not matter."""

    async def act(self, sampling: Sampling) -> Decision:
        """One legal action, each as likely. Raises ConfigError if the env does not tell any."""
        legal = self._env.legal_actions() if isinstance(self._env, KnowsLegalActions) else ()
        if legal:
            return Decision(action=legal[_drawn(sampling.seed, len(legal))])
        space = self._env.action_space
        if not isinstance(space, gym.Space):
            raise ConfigError(f"{type(self._env).__name__} tells no legal actions to draw from")
        if sampling.seed is not None:
            space.seed(sampling.seed)
        return Decision(action=str(space.sample()))


class OraclePolicy(PlainCall):
    """Plays the env's own best action. Raises NoOracle if it does not know one."""

    def __init__(self, env: Unwraps) -> None:
        self._env = env.unwrapped

    def reset(self, system_prompt: str) -> None:
        """Nothing is kept between turns."""

    def observe(self, text: str) -> None:
        """The env's state is looked at instead."""

    async def act(self, sampling: Sampling) -> Decision:
        """A best action."""
        if not isinstance(self._env, KnowsBestAction):
            raise NoOracle(f"{type(self._env).__name__} has no oracle_action()")
        return Decision(action=self._env.oracle_action())


def read_line() -> str:
    """A line from the terminal, where Ctrl-C interrupts at once, also inside a running loop."""
    if threading.current_thread() is not threading.main_thread():
        return input()
    # asyncio.run replaces this handler by one that waits for the loop, which waits for input().
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input()
    finally:
        signal.signal(signal.SIGINT, previous)


class HumanPolicy(PlainCall):
    """Somebody at a terminal: `write` shows what there is to see, `read` waits for the action."""

    def __init__(
        self, read: Callable[[], str] = read_line, write: Callable[[str], object] = print
    ) -> None:
        self._read = read
        self._write = write

    def reset(self, system_prompt: str) -> None:
        """Show what the env has to say about itself."""
        if system_prompt:
            self._write(system_prompt)

    def observe(self, text: str) -> None:
        """Show the observation."""
        self._write(text)

    async def act(self, sampling: Sampling) -> Decision:
        """What was typed. The loop waits for it; EOFError and KeyboardInterrupt come through."""
        return Decision(action=self._read())


class ReplayPolicy(PlainCall):
    """Decides as in a recorded rollout, and insists on seeing what was seen there."""

    def __init__(self, rollout: Rollout) -> None:
        self._steps = rollout.steps
        self._turn = 0
        self._seen = ""

    def reset(self, system_prompt: str) -> None:
        """Start from the first step."""
        self._turn = 0

    def observe(self, text: str) -> None:
        """Remember the observation."""
        self._seen = text

    async def act(self, sampling: Sampling) -> Decision:
        """The recorded decision.

        Raises EnvError where the observation differs, ScriptExhausted after the last step.
        """
        if self._turn == len(self._steps):
            raise ScriptExhausted(f"the recorded rollout ends after {self._turn} steps")
        step = self._steps[self._turn]
        if self._seen != step.observation:
            raise EnvError(
                f"turn {self._turn} shows {self._seen!r}, recorded was {step.observation!r}; "
                "replay with the recorded task"
            )
        self._turn += 1
        return step.decision


def _drawn(seed: int | None, count: int) -> int:
    if seed is None:
        return random.SystemRandom().randrange(count)
    return derived_seed(seed, 0) % count
