"""Games of TextArena (Guertler et al. 2025, arXiv:2504.11442), for one player and for two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ludic_gym.adapters.generators import lent_generators, seeded_state
from ludic_gym.adapters.mends import GAMES
from ludic_gym.concurrency import Caught
from ludic_gym.envs.core.base import TextEnv, Turn, end, proceed
from ludic_gym.envs.core.seats import GameOver, SeatsAECEnv
from ludic_gym.errors import ConfigError
from ludic_gym.packages import optional
from ludic_gym.reader import without_thought

# Observations of TextArena repeat all earlier messages, and would exceed the space.
LONGEST = 2**16


class Match:
    """One game from its start to its end, made again for every episode; equal seeds, equal games.

    TextArena draws from the global random generators, and a game that is used again grows in
    memory. So every match has its own state of the generators, and its own objects.

    game: its name in TextArena. players: their number. seed: of the game's generators.
    over: True once the game has ended.
    broken: the error that the game raised, "" for none; it ends the game.
    Raises MissingPackage without the package, ConfigError if it cannot set the game up.
    """

    def __init__(self, game: str, players: int, seed: int) -> None:
        known_game(game)
        self.over = False
        self.broken = ""
        self._game = game
        self._players = range(players)
        # The messages since each player's last turn.
        self._unread = [""] * players
        self._state = seeded_state(seed)
        self._env: Any = None
        if problem := self._run(lambda: self._set_up(seed)):
            raise ConfigError(f"TextArena cannot set up {game!r}: {problem}")
        self._collect()

    @property
    def mover(self) -> int:
        """The player whose turn it is."""
        player: int = self._env.state.current_player_id
        return player

    def play(self, action: str) -> None:
        """Play the mover's action after its thought; an error of the game ends it as `broken`."""
        # Games take the first move that they find, also that of a thought.
        move = without_thought(action)
        wrappers = known_game(self._game).default_wrappers or []
        adds_brackets = any(w.__name__ == "ActionFormattingWrapper" for w in wrappers)
        # What the left-out wrapper of such games does.
        if adds_brackets and "[" not in move and "]" not in move:
            move = f"[{move}]"

        def step() -> None:
            self.over, _ = self._env.step(move)

        self.broken = self._run(step)
        self.over = self.over or bool(self.broken)
        self._collect()

    def read(self, player: int) -> str:
        """The messages to the player since the last call."""
        text, self._unread[player] = self._unread[player].strip("\n"), ""
        # The end, because the newest messages have the position to play from.
        return text[-LONGEST:]

    def rewards(self) -> dict[int, float]:
        """Each player's reward, 0 if the game has none."""
        named = self._env.state.rewards or {}
        return {player: float(named.get(player, 0.0)) for player in self._players}

    def made_invalid_move(self, player: int) -> bool:
        """True if the game ended by an invalid move of the player."""
        info = self._env.state.game_info.get(player, {})
        return bool(info.get("invalid_move", False))

    def _set_up(self, seed: int) -> None:
        spec = known_game(self._game)
        module, _, name = spec.entry_point.partition(":")
        # Without TextArena's wrappers, whose observations grow without bound.
        self._env = getattr(optional(module, "ludic-gym[adapters]"), name)(**spec.kwargs)
        if self._game in GAMES:
            GAMES[self._game](self._env)
        self._env.reset(num_players=len(self._players), seed=seed)

    def _run(self, call: Callable[[], None]) -> str:
        """Call with the match's own generators; the error as text, "" for none."""
        # Games assume well-formed moves, and raise any error for others.
        with lent_generators(self._state) as left, Caught(Exception) as failure:
            call()
        self._state = left[0]
        return failure.text

    def _collect(self) -> None:
        for player in self._players:
            received = self._env.state.observations.get(player, [])
            self._unread[player] += "".join(f"{message}\n" for _, message, _ in received)
            self._env.state.observations[player] = []


@cache
def check_playable(game: str, players: int) -> None:
    """Set up one match of the game, once in a process: a level of Sokoban takes 0.3 s.

    Raises as Match does.
    """
    Match(game, players, seed=0)


def known_game(game: str) -> Any:  # noqa: ANN401 (not typed)
    """TextArena's registration. Raises ConfigError without the package or the game."""
    registry = optional("textarena.envs.registration", "ludic-gym[adapters]").ENV_REGISTRY
    if game in registry:
        return registry[game]
    near = sorted(name for name in registry if name.partition("-")[0] == game.partition("-")[0])
    raise ConfigError(f"TextArena has no game {game!r}; similar: {', '.join(near) or 'none'}")


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
        self._match = Match(self._game, 1, draw_seed(self.np_random))
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
        self._match = Match(self._game, 2, draw_seed(rng))
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


def draw_seed(rng: np.random.Generator) -> int:
    """31 random bits."""
    return int(rng.random() * 2**31)
