"""TextArenaEnv: one-player games of TextArena. TextArenaAECEnv: its two-player games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from ludic_gym.adapters.textarena_game import Match, known_game, new_match
from ludic_gym.envs.base import (
    RENDER_MODES,
    Info,
    TextEnv,
    Turn,
    checked_render_mode,
    ending,
    rendered,
)
from ludic_gym.errors import EnvError, EpisodeOver
from ludic_gym.spaces import TEXT, TextObservation, TextSpace, own_copy

PROMPT = (
    "You play a game. Its rules, and in which form it takes your moves, come with the first "
    "message. Reply with just your move."
)
PLAYERS = ("player_0", "player_1")


class TextArenaEnv(TextEnv):
    """A one-player game of TextArena. Needs the extra `adapters`.

    game: its name there, such as "Mastermind-v0", variants included.

    Observation: what the game said since the last turn, the rules at first. Action: a move as the
    rules ask for it; brackets may be left out where TextArena adds them. Only the end pays: the
    game's own reward, from -1 to 1. Success is a reward of 1. The last info has "outcome": "win",
    "loss", "illegal" (it ended with an invalid move) or "broken" (the game could not take a move,
    which earns -1; "game_error" says what it raised).
    """

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        known_game(game)
        self._game = game
        new_match(game, 1, seed=0)

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        self._row(options)
        self._match = new_match(self._game, 1, drawn_seed(self.np_random))
        return self._match.read(0), {"system_prompt": PROMPT}

    def _advance(self, action: str) -> Turn:
        self._match.play(action)
        text = self._match.read(0)
        if not self._match.over:
            return text, 0.0, False, False, {}
        reward = -1.0 if self._match.broken else self._match.rewards()[0]
        info = ending(success=reward >= 1.0, game=reward)
        info.update(outcome=outcome_of(self._match, 0, reward), game_error=self._match.broken)
        return text, reward, True, False, info


class TextArenaAECEnv(AECEnv[str, str, str | None]):
    """A two-player game of TextArena for PettingZoo. Needs the extra `adapters`.

    The agents are `player_0` and `player_1`; observations, actions, rewards and the infos at the
    end are those of `TextArenaEnv`, of each player. A game that cannot take a move costs its player
    1.
    """

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        known_game(game)
        self.metadata = {
            "name": game.lower().replace("-", "_"),
            "render_modes": list(RENDER_MODES),
            "render_fps": 1,
            "is_parallelizable": False,
        }
        self.render_mode = checked_render_mode(render_mode)
        self.possible_agents = list(PLAYERS)
        self.agents: list[str] = []
        self._game = game
        self._rng: np.random.Generator | None = None
        self._action_spaces = {agent: own_copy(TEXT) for agent in PLAYERS}
        new_match(game, 2, seed=0)

    def observation_space(self, agent: str) -> TextSpace:
        """Any text, for each agent."""
        return TEXT

    def action_space(self, agent: str) -> TextSpace:
        """Any text; each agent samples on its own."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a new match."""
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        self._match = new_match(self._game, 2, drawn_seed(self._rng))
        self.agents = list(PLAYERS)
        self.rewards = dict.fromkeys(PLAYERS, 0.0)
        self._cumulative_rewards = dict.fromkeys(PLAYERS, 0.0)
        self.terminations = dict.fromkeys(PLAYERS, False)
        self.truncations = dict.fromkeys(PLAYERS, False)
        self.infos: dict[str, Info] = {agent: {"system_prompt": PROMPT} for agent in PLAYERS}
        self._seen = dict.fromkeys(PLAYERS, "")
        self._next(PLAYERS[self._match.mover])

    def observe(self, agent: str) -> str:
        """What the agent was told up to its present turn. Raises EpisodeOver before a reset."""
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
        self._match.play(action)
        self._cumulative_rewards[agent] = 0.0
        if self._match.over:
            return self._end(agent)
        return self._next(PLAYERS[self._match.mover])

    def _next(self, agent: str) -> None:
        self.agent_selection = agent
        self._seen[agent] = self._match.read(PLAYERS.index(agent))

    def _end(self, mover: str) -> None:
        for player, reward in self._match.rewards().items():
            agent = PLAYERS[player]
            earned = -1.0 if self._match.broken and agent == mover else reward
            final = ending(success=earned >= 1.0, game=earned)
            outcome = outcome_of(self._match, player, earned)
            self.infos[agent] = {**self.infos[agent], **final, "outcome": outcome}
            self.rewards[agent] = self._cumulative_rewards[agent] = earned
            self.terminations[agent] = True
            self._seen[agent] = self._match.read(player)
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
        """What the selected agent saw last, as text or as an HTML fragment."""
        return rendered(self.observe(self.agent_selection), self.render_mode)

    def close(self) -> None:
        """Nothing is held open."""

    def _check_open(self) -> None:
        if not self.agents:
            raise EpisodeOver(
                f"{self._game}: no game is running, before the first reset() or after its end; "
                "call reset() first"
            )


def outcome_of(match: Match, player: int, reward: float) -> str:
    """The word for how a match ended for a player."""
    if match.broken:
        return "broken"
    if match.made_invalid_move(player) and reward <= 0.0:
        return "illegal"
    return "win" if reward >= 1.0 else "draw" if reward == 0.0 else "loss"


def drawn_seed(rng: np.random.Generator) -> int:
    """31 random bits."""
    return int(rng.random() * 2**31)


def _other(agent: str) -> str:
    return PLAYERS[1 - PLAYERS.index(agent)]
