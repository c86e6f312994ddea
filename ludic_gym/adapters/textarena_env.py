"""TextArenaEnv: one-player games of TextArena. TextArenaAECEnv: its two-player games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ludic_gym.adapters.textarena_game import Match, known_game, new_match
from ludic_gym.envs.core.base import TextEnv, Turn, end, proceed
from ludic_gym.envs.core.seats import GameOver, TwoAgentAECEnv

PROMPT = (
    "You play a game. Its rules, and in which form it takes your moves, come with the first "
    "message. Reply with just your move."
)


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

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Set up a new game."""
        self._match = new_match(self._game, 1, drawn_seed(self.np_random))
        return self._match.read(0), PROMPT

    def turn(self, action: str) -> Turn:
        """Play the move."""
        self._match.play(action)
        text = self._match.read(0)
        if not self._match.over:
            return proceed(text)
        reward = -1.0 if self._match.broken else self._match.rewards()[0]
        outcome = outcome_of(self._match, 0, reward)
        info = {"outcome": outcome, "game_error": self._match.broken}
        return end(text, success=reward >= 1.0, info=info, game=reward)


class TextArenaAECEnv(TwoAgentAECEnv):
    """A two-player game of TextArena for PettingZoo. Needs the extra `adapters`.

    Observations, actions, rewards and the infos at the end are those of `TextArenaEnv`, of each
    player. A game that cannot take a move costs who made it 1.
    """

    component = "game"

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        super().__init__(game.lower().replace("-", "_"), render_mode)
        known_game(game)
        self._game = game
        new_match(game, 2, seed=0)

    def deal(self, rng: np.random.Generator) -> int:
        """Set up a new game."""
        self._match = new_match(self._game, 2, drawn_seed(rng))
        self._views = ["", ""]
        return self._read_by(self._match.mover)

    def move(self, seat: int, action: str) -> int | GameOver:
        """Play the move of the seat."""
        match = self._match
        match.play(action)
        if not match.over:
            return self._read_by(match.mover)
        self._views = [match.read(0), match.read(1)]
        rewards = match.rewards()
        if match.broken:
            rewards[seat] = -1.0
        first, second = (outcome_of(match, player, rewards[player]) for player in (0, 1))
        won = (rewards[0] >= 1.0, rewards[1] >= 1.0)
        return GameOver((rewards[0], rewards[1]), (first, second), won)

    def view(self, seat: int) -> str:
        """The messages that the player of the seat got before its turn, or at the end."""
        return self._views[seat]

    def system_prompt(self, seat: int) -> str:
        """The reply format; the rules are in the first observation."""
        return PROMPT

    def _read_by(self, seat: int) -> int:
        self._views[seat] = self._match.read(seat)
        return seat


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
