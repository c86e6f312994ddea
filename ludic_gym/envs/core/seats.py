"""SeatsAECEnv: the base class of PettingZoo AEC environments of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from ludic_gym.envs.core.base import RENDER_MODES, Info, checked_render_mode, render_text
from ludic_gym.errors import EnvError, EpisodeOver, NoOracle
from ludic_gym.reader import Reading, one_of, read_reply
from ludic_gym.spaces import TEXT, TextObservation, TextSpace, own_copy

# The agents of a game for two.
PLAYERS = ("player_0", "player_1")


class GameOver(NamedTuple):
    """Result of a game, with one value per seat.

    Attributes:
        rewards: all that the game pays.
        outcomes: names of the result, such as "win" or "illegal".
        successes: True for a seat that solved its task.
    """

    rewards: tuple[float, ...]
    outcomes: tuple[str, ...]
    successes: tuple[bool, ...]


class SeatsAECEnv(AECEnv[str, str, str | None], ABC):
    """The agents "player_0", "player_1", ... in seats 0, 1, ... act in the order of the game.

    A subclass writes `deal`, `move`, `view` and `system_prompt`. Only the end of a game pays, and
    all agents stay until then; one that is out of the game is not selected again. An agent's info
    has "system_prompt" until its first action, and at the end "success", "outcome"
    and the reward as the component `component`.

    Attributes:
        component: name of the reward's component.

    Args:
        name: name of the environment, `metadata["name"]`.
        seats: number of agents.
    """

    component: ClassVar[str] = "outcome"

    def __init__(self, name: str, render_mode: str | None, seats: int = 2) -> None:
        self.metadata = {
            "name": name,
            "render_modes": list(RENDER_MODES),
            "render_fps": 1,
            "is_parallelizable": False,
        }
        self.render_mode = checked_render_mode(render_mode)
        self.possible_agents = [f"player_{seat}" for seat in range(seats)]
        self.agents: list[str] = []
        # Kept beside the tables because policies look up legal actions in every turn.
        self._running = False
        self._rng: np.random.Generator | None = None
        # Spaces of their own, because agents that are seeded apart must not share one generator.
        self._action_spaces = {agent: own_copy(TEXT) for agent in self.possible_agents}

    @abstractmethod
    def deal(self, rng: np.random.Generator) -> int:
        """Set up a new game and return the seat that moves first."""

    @abstractmethod
    def move(self, seat: int, action: str) -> int | GameOver:
        """Play for the seat and return the seat that moves next, or the result of the game.

        action: any text; an illegal one has a defined result and raises nothing.
        """

    @abstractmethod
    def view(self, seat: int) -> str:
        """The game as the player of the seat sees it."""

    @abstractmethod
    def system_prompt(self, seat: int) -> str:
        """The rules and the reply format."""

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal actions of the selected agent, while a game runs; () if any text is legal."""
        return ()

    def best_action(self) -> str:
        """A best action of the selected agent, while a game runs.

        Raises NoOracle if none is known.
        """
        raise NoOracle(f"{type(self).__name__} does not know its best action")

    def observation_space(self, agent: str) -> TextSpace:
        """Any text, for each agent."""
        return TEXT

    def action_space(self, agent: str) -> TextSpace:
        """Any text; each agent has a space of its own to sample from."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a game, drawn from a new generator if a seed is given."""
        if seed is not None or self._rng is None:
            # Games without a seed continue with the same generator, so that none is repeated.
            self._rng = seeding.np_random(seed)[0]
        mover = self.deal(self._rng)
        agents = self.possible_agents
        self.agents = list(agents)
        self.rewards = dict.fromkeys(agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(agents, 0.0)
        self.terminations = dict.fromkeys(agents, False)
        self.truncations = dict.fromkeys(agents, False)
        self.infos: dict[str, Info] = {
            agent: {"system_prompt": self.system_prompt(seat)} for seat, agent in enumerate(agents)
        }
        self.agent_selection = agents[mover]
        self._running = True

    def observe(self, agent: str) -> str:
        """The game as the agent sees it. Raises EpisodeOver before the first reset."""
        self.check_open()
        return TextObservation(self.view(self.possible_agents.index(agent)))

    def step(self, action: str | None) -> None:
        """Play for the selected agent; `None` retires it once the game is over.

        Raises EpisodeOver if no game is running or the agent's is over, EnvError if the action is
        not a str.
        """
        self.check_open()
        agent = self.agent_selection
        if self.terminations[agent]:
            self._retire(agent, action)
            return
        if not isinstance(action, str):
            raise EnvError(f"{agent} is to move: an action is a str, got {action!r}")
        reading = self.read(action)
        # The system prompt is in the first info only, as in Gymnasium's reset.
        self.infos[agent] = {} if reading is None or reading.rule == "whole" else reading.info
        action = reading.action if reading and reading.found else action
        after = self.move(self.possible_agents.index(agent), action)
        if isinstance(after, GameOver):
            self.finish(after)
        else:
            self.agent_selection = self.possible_agents[after]

    def finish(self, over: GameOver) -> None:
        """End the game: fill the tables of all agents."""
        part = f"reward/{self.component}"
        for agent, reward, outcome, success in zip(self.possible_agents, *over, strict=True):
            final = {"success": success, part: reward, "outcome": outcome}
            self.infos[agent] = {**self.infos[agent], **final}
        self.rewards = dict(zip(self.possible_agents, over.rewards, strict=True))
        # Only the end pays, so the cumulative rewards are those of the last step.
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.possible_agents, True)
        self.agent_selection = self._after(self.agent_selection)
        self._running = False

    def legal_actions(self) -> tuple[str, ...]:
        """Legal actions of the selected agent; () if any text is legal, or no game is running."""
        return self.allowed_actions() if self._running else ()

    def read(self, reply: str) -> Reading | None:
        """The action in a reply of the selected agent; None where any text is legal."""
        legal = self.allowed_actions()
        return read_reply(reply, self.spelt_action, legal) if legal else None

    def spelt_action(self, text: str) -> str | None:
        """The legal action that a text spells; None if it spells none."""
        return one_of(self.allowed_actions())(text)

    def oracle_action(self) -> str:
        """A best action of the selected agent.

        Raises NoOracle if none is known, or if no game is running.
        """
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no game is running; call reset() first")
        return self.best_action()

    def check_open(self) -> None:
        """Raises EpisodeOver unless a game is running."""
        if not self.agents:
            raise EpisodeOver(
                f"{type(self).__name__}: no game is running, before the first reset() or after "
                "its end; call reset() first"
            )

    def render(self) -> str:
        """The game as the selected agent sees it, as text or as an HTML fragment."""
        return render_text(str(self.observe(self.agent_selection)), self.render_mode)

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _retire(self, agent: str, action: str | None) -> None:
        """Remove an agent whose game is over from all tables. Raises EpisodeOver if it acts."""
        if action is not None:
            raise EpisodeOver(f"the game is over for {agent}: step(None), got {action!r}")
        following = self._after(agent)
        self.agents.remove(agent)
        tables: tuple[dict[str, Any], ...] = (self.rewards, self.terminations, self.truncations)
        for table in (*tables, self.infos, self._cumulative_rewards):
            del table[agent]
        # As PettingZoo's own step of a finished agent: the table has the rewards of the latest step
        # only.
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.agent_selection = following

    def _after(self, agent: str) -> str:
        """The agent of the next seat that is still in its tables."""
        return self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
