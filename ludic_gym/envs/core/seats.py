"""What every AEC env of two agents keeps: their names, spaces and tables, and how they retire."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from ludic_gym.envs.core.base import RENDER_MODES, Info, checked_render_mode, rendered
from ludic_gym.errors import EpisodeOver
from ludic_gym.spaces import TEXT, TextSpace, own_copy

PLAYERS = ("player_0", "player_1")


class SeatsAECEnv(AECEnv[str, str, str | None]):
    """Two agents with text to read and to write; a class below it says what they play."""

    def __init__(self, name: str, render_mode: str | None) -> None:
        self.metadata = {
            "name": name,
            "render_modes": list(RENDER_MODES),
            "render_fps": 1,
            "is_parallelizable": False,
        }
        self.render_mode = checked_render_mode(render_mode)
        self.possible_agents = list(PLAYERS)
        self.agents: list[str] = []
        self._rng: np.random.Generator | None = None
        self._action_spaces = {agent: own_copy(TEXT) for agent in PLAYERS}

    def observation_space(self, agent: str) -> TextSpace:
        """Any text, for each agent."""
        return TEXT

    def action_space(self, agent: str) -> TextSpace:
        """Any text; each agent samples on its own."""
        return self._action_spaces[agent]

    def check_open(self) -> None:
        """Raises EpisodeOver unless a game is running."""
        if not self.agents:
            raise EpisodeOver(
                f"{self._title()}: no game is running, before the first reset() or after its end; "
                "call reset() first"
            )

    def close(self) -> None:
        """Nothing is held open."""

    def render(self) -> str:
        """What the selected agent sees, as text or as an HTML fragment."""
        return rendered(str(self.observe(self.agent_selection)), self.render_mode)

    def _title(self) -> str:
        return str(self.metadata["name"])

    def _drawn(self, seed: int | None) -> np.random.Generator:
        """What a new game is drawn from: of its own, where a seed is given."""
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        return self._rng

    def _seat(self, prompts: tuple[str, str]) -> None:
        """Begin with both agents and nothing won."""
        self.agents = list(PLAYERS)
        self.rewards = dict.fromkeys(PLAYERS, 0.0)
        self._cumulative_rewards = dict.fromkeys(PLAYERS, 0.0)
        self.terminations = dict.fromkeys(PLAYERS, False)
        self.truncations = dict.fromkeys(PLAYERS, False)
        self.infos: dict[str, Info] = {
            agent: {"system_prompt": prompt} for agent, prompt in zip(PLAYERS, prompts, strict=True)
        }

    def _retire(self, agent: str, action: str | None) -> None:
        """Take an agent whose game is over out of all tables. Raises EpisodeOver if it acts."""
        if action is not None:
            raise EpisodeOver(f"the game is over for {agent}: step(None), got {action!r}")
        self.agents.remove(agent)
        tables: tuple[dict[str, Any], ...] = (self.rewards, self.terminations, self.truncations)
        for table in (*tables, self.infos, self._cumulative_rewards):
            del table[agent]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.agent_selection = other(agent)

    def _is_running(self) -> bool:
        return bool(self.agents) and not any(self.terminations.values())


def other(agent: str) -> str:
    """The one that is not `agent`."""
    return PLAYERS[1 - PLAYERS.index(agent)]
