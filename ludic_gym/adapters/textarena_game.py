"""Match: a game of TextArena (Guertler et al. 2025, arXiv:2504.11442) with its own generators."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ludic_gym.adapters.generators import lent_generators, seeded_state
from ludic_gym.concurrency import Caught
from ludic_gym.envs.core.game import said
from ludic_gym.errors import ConfigError
from ludic_gym.packages import optional

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
        move = said(action)
        self.broken = self._run(lambda: self._step(move))
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
        self._env.reset(num_players=len(self._players), seed=seed)

    def _step(self, action: str) -> None:
        wrappers = known_game(self._game).default_wrappers or []
        adds_brackets = any(w.__name__ == "ActionFormattingWrapper" for w in wrappers)
        # What the left-out wrapper of such games does.
        if adds_brackets and "[" not in action and "]" not in action:
            action = f"[{action}]"
        self.over, _ = self._env.step(action)

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
