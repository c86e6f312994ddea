"""TwoSeatsEnv: a game of another package for two agents in turn, as a PettingZoo AEC env."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from ludic_gym.envs.base import RENDER_MODES, Info, checked_render_mode, ending, rendered
from ludic_gym.errors import EnvError, EpisodeOver
from ludic_gym.spaces import TEXT, TextObservation, TextSpace, own_copy

SEATS = ("player_0", "player_1")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a game ended: each seat's reward, and the word for it, such as "win"."""

    rewards: tuple[float, float]
    outcomes: tuple[str, str]


class TwoSeatsEnv(AECEnv[str, str, str | None], ABC):
    """The agents `player_0` and `player_1` act in the order that the game says.

    An agent's info has "system_prompt" until its first action, and at the end "success",
    "outcome" and the reward's component. Only the end pays.
    """

    def __init__(self, name: str, render_mode: str | None) -> None:
        self.metadata = {
            "name": name.lower().replace("-", "_"),
            "render_modes": list(RENDER_MODES),
            "render_fps": 1,
            "is_parallelizable": False,
        }
        self.render_mode = checked_render_mode(render_mode)
        self.possible_agents = list(SEATS)
        self.agents: list[str] = []
        self._rng: np.random.Generator | None = None
        self._action_spaces = {agent: own_copy(TEXT) for agent in SEATS}

    @abstractmethod
    def _begin(self, seed: int) -> int:
        """Set up a new game; the seat that moves first."""

    @abstractmethod
    def _play(self, seat: int, action: str) -> int | Ended:
        """Play for a seat; the seat that moves next, or how the game ended."""

    @abstractmethod
    def _told(self, seat: int) -> str:
        """What a seat is shown as its turn begins, or as the game ends; read once each time."""

    @abstractmethod
    def _prompt(self, seat: int) -> str:
        """The rules and the reply format."""

    def _legal(self) -> tuple[str, ...]:
        """The moves that are legal now; none at all where that is not known."""
        return ()

    def observation_space(self, agent: str) -> TextSpace:
        """Any text, for each agent."""
        return TEXT

    def action_space(self, agent: str) -> TextSpace:
        """Any text; each agent samples on its own."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a new game."""
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        mover = self._begin(int(self._rng.random() * 2**31))
        self.agents = list(SEATS)
        self.rewards = dict.fromkeys(SEATS, 0.0)
        self._cumulative_rewards = dict.fromkeys(SEATS, 0.0)
        self.terminations = dict.fromkeys(SEATS, False)
        self.truncations = dict.fromkeys(SEATS, False)
        self.infos: dict[str, Info] = {
            agent: {"system_prompt": self._prompt(seat)} for seat, agent in enumerate(SEATS)
        }
        self._seen = dict.fromkeys(SEATS, "")
        self._turn_to(mover)

    def observe(self, agent: str) -> str:
        """What the agent was last shown. Raises EpisodeOver before the first reset."""
        self._check_open()
        return TextObservation(self._seen[agent])

    def step(self, action: str | None) -> None:
        """Play for the selected agent; `None` retires it once the game is over.

        Raises EpisodeOver when no game is running or the agent's is over, EnvError for an action
        that is no text.
        """
        self._check_open()
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._retire(agent, action)
        if not isinstance(action, str):
            raise EnvError(f"{agent} is to move: an action is a str, got {action!r}")
        self.infos[agent] = {}
        after = self._play(SEATS.index(agent), action)
        return self._end(after, agent) if isinstance(after, Ended) else self._turn_to(after)

    def legal_actions(self) -> tuple[str, ...]:
        """What the selected agent may do now; nothing where that is not known, or it is over."""
        return self._legal() if self.agents and not any(self.terminations.values()) else ()

    def _turn_to(self, seat: int) -> None:
        self.agent_selection = SEATS[seat]
        self._seen[SEATS[seat]] = self._told(seat)

    def _end(self, ended: Ended, mover: str) -> None:
        for seat, agent in enumerate(SEATS):
            reward, outcome = ended.rewards[seat], ended.outcomes[seat]
            final = ending(success=reward >= 1.0, game=reward)
            self.infos[agent] = {**self.infos[agent], **final, "outcome": outcome}
            self.rewards[agent] = self._cumulative_rewards[agent] = reward
            self.terminations[agent] = True
            self._seen[agent] = self._told(seat)
        self.agent_selection = _other(mover)

    def _retire(self, agent: str, action: str | None) -> None:
        if action is not None:
            raise EpisodeOver(f"the game is over for {agent}: step(None), got {action!r}")
        self.agents.remove(agent)
        tables = (self.rewards, self.terminations, self.truncations, self.infos)
        for table in (*tables, self._cumulative_rewards):
            del table[agent]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.agent_selection = _other(agent)

    def render(self) -> str:
        """What the selected agent was last shown, as text or as an HTML fragment."""
        return rendered(self.observe(self.agent_selection), self.render_mode)

    def close(self) -> None:
        """Nothing is held open."""

    def _check_open(self) -> None:
        if not self.agents:
            raise EpisodeOver(
                f"{self.metadata['name']}: no game is running, before the first reset() or after "
                "its end; call reset() first"
            )


def _other(agent: str) -> str:
    return SEATS[1 - SEATS.index(agent)]
