"""Policies without a model: scripted, random, oracle, opponents of games, human, replay."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np

from ludic_gym.errors import ConfigError, EnvError, NoOracle, ScriptExhausted
from ludic_gym.offered import legal_actions
from ludic_gym.policies.base import Memoryless, PlainCall
from ludic_gym.sampling import derived_seed
from ludic_gym.types import Decision, Rollout, Sampling


class Unwraps(Protocol):
    """Any Gymnasium or PettingZoo env."""

    @property
    def unwrapped(self) -> Any:  # noqa: ANN401
        """The env below all wrappers."""


@runtime_checkable
class KnowsBestAction(Protocol):
    """An env with a known best action."""

    def oracle_action(self) -> str:
        """A best action for the current state."""


@runtime_checkable
class HasOpponents(Protocol):
    """A game that knows scripted players by name."""

    opponents: Mapping[str, object]

    def opponent_action(self, name: str, rng: np.random.Generator) -> str:
        """The action of the named player, one of `opponents`, for the selected agent."""


@runtime_checkable
class HasAgents(Protocol):
    """A PettingZoo env: its agents, and the space of actions of each."""

    possible_agents: list[str]

    def action_space(self, agent: str) -> object:
        """The space of actions of an agent."""


class ScriptedPolicy(Memoryless):
    """Policy that plays the actions in order, from the first in every episode.

    >>> policy = ScriptedPolicy(["left", "right"])
    >>> policy("a wall"), policy("a door")
    ('left', 'right')
    """

    def __init__(self, actions: Iterable[str]) -> None:
        self._actions = tuple(actions)
        self._turn = 0

    def reset(self, system_prompt: str) -> None:
        """Start from the first action."""
        self._turn = 0

    async def act(self, sampling: Sampling) -> Decision:
        """The next action. Raises ScriptExhausted when there is none."""
        if self._turn == len(self._actions):
            raise ScriptExhausted(f"all {self._turn} scripted actions are played; give more")
        self._turn += 1
        return Decision(action=self._actions[self._turn - 1])


class RandomPolicy(Memoryless):
    """Policy that draws from the env's legal actions, or from its action space if it has none.

    The draw is determined by the sampling seed; without a seed it is random.

    >>> env = gym.make("ludic/TicTacToe-v0")
    >>> observation, info = env.reset(seed=1)
    >>> RandomPolicy(env)(observation, Sampling(seed=7))
    'A2'
    """

    def __init__(self, env: Unwraps) -> None:
        self._env = env

    async def act(self, sampling: Sampling) -> Decision:
        """A legal action, uniformly drawn. Raises ConfigError if there is none to draw from."""
        legal = legal_actions(self._env)
        if legal:
            if sampling.seed is None:
                # Not the global generator: a caller that seeds it would get equal "new" episodes.
                return Decision(action=random.SystemRandom().choice(legal))
            return Decision(action=legal[derived_seed(sampling.seed, 0) % len(legal)])
        inner = self._env.unwrapped
        space = inner.action_space
        if isinstance(inner, HasAgents):
            # Texts of any agent are legal for all others.
            space = inner.action_space(inner.possible_agents[0])
        if not isinstance(space, gym.Space):
            raise ConfigError(f"{type(inner).__name__} has no legal actions to draw from")
        # The space is shared by all environments: the draw must not depend on earlier ones.
        if sampling.seed is not None:
            space.seed(sampling.seed)
        return Decision(action=str(space.sample()))


class OpponentPolicy(Memoryless):
    """Policy that plays like a scripted opponent of a game, such as "hard".

    Its draws are determined by the sampling seed; without a seed they are random.

    >>> import pettingzoo
    >>> env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    >>> env.reset(seed=1)
    >>> OpponentPolicy(env, "perfect")(env.last()[0], Sampling(seed=7))
    'B3'
    """

    def __init__(self, env: Unwraps, name: str) -> None:
        self._env = env.unwrapped
        self._name = name

    async def act(self, sampling: Sampling) -> Decision:
        """The opponent's action. Raises ConfigError if the env has no such opponent."""
        if not isinstance(self._env, HasOpponents):
            raise ConfigError(f"{type(self._env).__name__} has no scripted player {self._name!r}")
        rng = np.random.default_rng(sampling.seed)
        return Decision(action=self._env.opponent_action(self._name, rng))


class OraclePolicy(Memoryless):
    """Policy that plays the env's best action. Raises NoOracle if there is none.

    >>> env = gym.make("ludic/Arithmetic-v0")
    >>> observation, info = env.reset(seed=1)
    >>> env.step(OraclePolicy(env)(observation))[1]
    1.0
    """

    def __init__(self, env: Unwraps) -> None:
        self._env = env.unwrapped

    async def act(self, sampling: Sampling) -> Decision:
        """A best action."""
        # Python's own test of a protocol takes as long as a turn of a game.
        try:
            oracle = self._env.oracle_action
        except AttributeError:
            raise NoOracle(f"{type(self._env).__name__} has no oracle_action()") from None
        return Decision(action=oracle())


def read_line(prompt: str = "") -> str:
    """A line from the terminal; Ctrl-C interrupts at once, also inside a running event loop."""
    if threading.current_thread() is not threading.main_thread():
        return input(prompt)
    # asyncio.run replaces this handler by one that waits for the loop, which waits for input().
    # Before the prompt, because Ctrl-C may follow that at once.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(prompt)
    finally:
        signal.signal(signal.SIGINT, previous)


class HumanPolicy(PlainCall):
    """Policy of a human: `write` prints observations, `read` waits for actions.

    >>> HumanPolicy(read=lambda: "B2")("Your move:")
    Your move:
    'B2'
    """

    def __init__(
        self, read: Callable[[], str] = read_line, write: Callable[[str], object] = print
    ) -> None:
        self._read = read
        self._write = write

    def reset(self, system_prompt: str) -> None:
        """Print the system prompt."""
        if system_prompt:
            self._write(system_prompt)

    def observe(self, text: str) -> None:
        """Print the observation."""
        self._write(text)

    async def act(self, sampling: Sampling) -> Decision:
        """Read an action, which blocks the loop; EOFError and KeyboardInterrupt are raised."""
        # Not on another thread, where notebooks cannot read input.
        return Decision(action=self._read())


class ReplayPolicy(PlainCall):
    """Policy that repeats the decisions of a rollout, and requires its observations.

    >>> from ludic_gym import Step, Task
    >>> step = Step(observation="2 + 3 = ?", decision=Decision(action="5"), reward=1.0)
    >>> ReplayPolicy(Rollout(task=Task(env_id="ludic/Arithmetic-v0"), steps=(step,)))("2 + 3 = ?")
    '5'
    """

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
        # Checked, because decisions in other states would give a rollout that never happened.
        step = self._steps[self._turn]
        if self._seen != step.observation:
            raise EnvError(
                f"turn {self._turn} has {self._seen!r}, recorded was {step.observation!r}; "
                "replay with the recorded task"
            )
        self._turn += 1
        return step.decision
