"""TextArenaEnv: one-player games of TextArena. TextArenaAECEnv: its two-player games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ludic_gym.adapters.textarena_game import Match, check_playable
from ludic_gym.envs.core.base import TextEnv, Turn, end, proceed
from ludic_gym.envs.core.seats import GameOver, SeatsAECEnv

PROMPT = (
    "You play a game. Its rules, and in which form it takes your moves, come with the first "
    "message. Reply with just your move."
)


class TextArenaEnv(TextEnv):
    """A one-player game of TextArena. Requires the extra `adapters`.

    game: its name in TextArena, such as "Mastermind-v0", variants included.

    Observation: the game's messages since the last turn, at first the rules. Action: a move in the
    format of the rules; brackets may be omitted where TextArena adds them. The reward is the game's
    own at its end, from -1 to 1, else 0. Success is a reward of 1. The last info has "outcome":
    "win", "loss", "illegal" (it ended with an invalid move) or "broken" (the game raised an error,
    which is in "game_error"; the reward is -1).
    """

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._game = game
        # A game that cannot be set up fails here and not in the first episode.
        check_playable(game, 1)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Set up a new game."""
        self._match = Match(self._game, 1, drawn_seed(self.np_random))
        return self._match.read(0), PROMPT

    def turn(self, action: str) -> Turn:
        """Play the move."""
        self._match.play(action)
        text = self._match.read(0)
        if not self._match.over:
            return proceed(text)
        # An error after a hostile move must not pay, and other rewards may be missing then.
        reward = -1.0 if self._match.broken else self._match.rewards()[0]
        outcome = outcome_of(self._match, 0, reward)
        info = {"outcome": outcome, "game_error": self._match.broken}
        return end(text, success=reward >= 1.0, info=info, game=reward)


class TextArenaAECEnv(SeatsAECEnv):
    """A two-player game of TextArena for PettingZoo. Requires the extra `adapters`.

    Observations, actions, rewards and last infos are as in `TextArenaEnv`, for each player. If the
    game raises an error, the player of the move gets -1.
    """

    component = "game"

    def __init__(self, game: str, render_mode: str | None = None) -> None:
        super().__init__(game.lower().replace("-", "_"), render_mode)
        self._game = game
        # As above: a wrong name or number of players fails here.
        check_playable(game, 2)

    def deal(self, rng: np.random.Generator) -> int:
        """Set up a new game."""
        self._match = Match(self._game, 2, drawn_seed(rng))
        # Reading takes the messages away, but PettingZoo may observe several times.
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
    """The outcome of a match for a player: "win", "draw", "loss", "illegal" or "broken".

    reward: of the player, from -1 to 1.
    """
    # With a positive reward the game has forgiven the move.
    if match.broken:
        return "broken"
    if match.made_invalid_move(player) and reward <= 0.0:
        return "illegal"
    return "win" if reward >= 1.0 else "draw" if reward == 0.0 else "loss"


def drawn_seed(rng: np.random.Generator) -> int:
    """31 random bits."""
    return int(rng.random() * 2**31)
