"""Match: a game of TextArena (Guertler et al. 2025, arXiv:2504.11442) with its own generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ludic_gym.adapters.packages import State, lent_generators, seeded_state
from ludic_gym.errors import ConfigError
from ludic_gym.extras import optional

# Observations of TextArena repeat all earlier messages, and would exceed the space.
LONGEST = 2**16


@dataclass(slots=True)
class Match:
    """One game from its start to its end, made again for every episode.

    TextArena draws from the global random generators, and a game that is used again grows in
    memory. So every match has its own state of the generators, and its own objects.

    unread: the messages since each player's last turn.
    broken: the error that the game raised, "" for none; it ends the game.
    """

    game: str
    players: int
    state: State
    env: Any = None
    over: bool = False
    broken: str = ""
    unread: list[str] = field(default_factory=list)

    @property
    def mover(self) -> int:
        """The player whose turn it is."""
        player: int = self.env.state.current_player_id
        return player

    def start(self, seed: int) -> None:
        """Set the game up. Raises ConfigError if that fails."""
        self.unread = [""] * self.players
        problem = self._run(lambda: self._set_up(seed))
        if problem:
            raise ConfigError(f"TextArena cannot set up {self.game!r}: {problem}")
        self._collect()

    def play(self, action: str) -> None:
        """Play the mover's action; an error of the game ends it as `broken`."""
        self.broken = self._run(lambda: self._step(action))
        self.over = self.over or bool(self.broken)
        self._collect()

    def read(self, player: int) -> str:
        """The messages to the player since the last call."""
        text, self.unread[player] = self.unread[player].strip("\n"), ""
        return text[-LONGEST:]

    def rewards(self) -> dict[int, float]:
        """Each player's reward, 0 if the game has none."""
        named = self.env.state.rewards or {}
        return {player: float(named.get(player, 0.0)) for player in range(self.players)}

    def made_invalid_move(self, player: int) -> bool:
        """True if the game ended by an invalid move of the player."""
        info = self.env.state.game_info.get(player, {})
        return bool(info.get("invalid_move", False))

    def _set_up(self, seed: int) -> None:
        self.env = bare_game(self.game)
        self.env.reset(num_players=self.players, seed=seed)

    def _step(self, action: str) -> None:
        if takes_brackets(self.game) and "[" not in action and "]" not in action:
            action = f"[{action}]"
        self.over, _ = self.env.step(action)

    def _run(self, call: Callable[[], None]) -> str:
        """Call with the match's own generators; the error as text, "" for none."""
        with lent_generators(self.state) as left:
            try:
                call()
                problem = ""
            # Games assume well-formed moves, and raise any error for others.
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        self.state = left[0]
        return problem

    def _collect(self) -> None:
        for player in range(self.players):
            received = self.env.state.observations.get(player, [])
            self.unread[player] += "".join(f"{message}\n" for _, message, _ in received)
            self.env.state.observations[player] = []


def new_match(game: str, players: int, seed: int) -> Match:
    """A match at its start; equal seeds give equal matches."""
    match = Match(game, players, seeded_state(seed))
    match.start(seed)
    return match


def known_game(game: str) -> Any:  # noqa: ANN401 (not typed)
    """TextArena's registration. Raises ConfigError without the package or the game."""
    registry = optional("textarena.envs.registration", "ludic-gym[adapters]").ENV_REGISTRY
    with contextlib.suppress(KeyError):
        return registry[game]
    near = sorted(name for name in registry if name.partition("-")[0] == game.partition("-")[0])
    raise ConfigError(f"TextArena has no game {game!r}; similar: {', '.join(near) or 'none'}")


def bare_game(game: str) -> Any:  # noqa: ANN401 (not typed)
    """A new game without TextArena's wrappers, whose observations grow without bound."""
    spec = known_game(game)
    module, _, name = spec.entry_point.partition(":")
    return getattr(optional(module, "ludic-gym[adapters]"), name)(**spec.kwargs)


def takes_brackets(game: str) -> bool:
    """True if TextArena adds missing brackets to actions."""
    wrappers = known_game(game).default_wrappers or []
    return any(wrapper.__name__ == "ActionFormattingWrapper" for wrapper in wrappers)
