"""TwoSeatsEnv: a two-player game of another package as a PettingZoo AEC env."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ludic_gym.envs.core.base import ending
from ludic_gym.envs.core.seats import PLAYERS, SeatsAECEnv, other
from ludic_gym.errors import EnvError
from ludic_gym.spaces import TextObservation


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a game: each seat's reward and outcome, such as "win"."""

    rewards: tuple[float, float]
    outcomes: tuple[str, str]


class TwoSeatsEnv(SeatsAECEnv, ABC):
    """Base class of games in which `player_0` and `player_1` act in the game's order.

    An agent's info has "system_prompt" until its first action, and at the end "success",
    "outcome" and the reward's component. Rewards are 0 before the end.
    """

    def __init__(self, name: str, render_mode: str | None) -> None:
        super().__init__(name.lower().replace("-", "_"), render_mode)

    @abstractmethod
    def _begin(self, seed: int) -> int:
        """Set up a new game; return the first seat to move."""

    @abstractmethod
    def _play(self, seat: int, action: str) -> int | Ended:
        """Play for a seat; return the next seat to move, or the end of the game."""

    @abstractmethod
    def _view(self, seat: int) -> str:
        """The observation of a seat at the start of its turn or at the end; called once each."""

    @abstractmethod
    def _prompt(self, seat: int) -> str:
        """The rules and the reply format."""

    def _legal(self) -> tuple[str, ...]:
        """The legal moves; () if they are unknown."""
        return ()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a new game."""
        mover = self._begin(int(self._drawn(seed).random() * 2**31))
        self._seat((self._prompt(0), self._prompt(1)))
        self._seen = dict.fromkeys(PLAYERS, "")
        self._turn_to(mover)

    def observe(self, agent: str) -> str:
        """The agent's last observation. Raises EpisodeOver before the first reset."""
        self.check_open()
        return TextObservation(self._seen[agent])

    def step(self, action: str | None) -> None:
        """Play for the selected agent; `None` removes it after the end of the game.

        Raises EpisodeOver when no game is running or the agent's has ended, EnvError for an action
        that is no text.
        """
        self.check_open()
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._retire(agent, action)
        if not isinstance(action, str):
            raise EnvError(f"{agent} is to move: an action is a str, got {action!r}")
        self.infos[agent] = {}
        after = self._play(PLAYERS.index(agent), action)
        return self._end(after, agent) if isinstance(after, Ended) else self._turn_to(after)

    def legal_actions(self) -> tuple[str, ...]:
        """The selected agent's legal moves; () if they are unknown, or after the end."""
        return self._legal() if self._is_running() else ()

    def _turn_to(self, seat: int) -> None:
        self.agent_selection = PLAYERS[seat]
        self._seen[PLAYERS[seat]] = self._view(seat)

    def _end(self, ended: Ended, mover: str) -> None:
        for seat, agent in enumerate(PLAYERS):
            reward, outcome = ended.rewards[seat], ended.outcomes[seat]
            final = ending(success=reward >= 1.0, game=reward)
            self.infos[agent] = {**self.infos[agent], **final, "outcome": outcome}
            self.rewards[agent] = self._cumulative_rewards[agent] = reward
            self.terminations[agent] = True
            self._seen[agent] = self._view(seat)
        self.agent_selection = other(mover)
