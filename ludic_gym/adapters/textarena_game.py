"""A match of TextArena (Guertler et al. 2025, arXiv:2504.11442), with generators of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ludic_gym.adapters.extras import needed
from ludic_gym.adapters.randomness import State, lent_generators, seeded_state
from ludic_gym.errors import ConfigError

# TextArena's own longest observations, which repeat all that was said, would not fit.
LONGEST = 2**16


@dataclass(slots=True)
class Match:
    """One game from its start to its end; it is made anew for every episode.

    TextArena draws from the global random generators and keeps on growing where a game is used
    again: here every match has its own generators' state and its own objects.

    unread: per player, the messages since that player's last turn.
    broken: what the game raised, if it did; it is over then.
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
        """Whose turn it is."""
        player: int = self.env.state.current_player_id
        return player

    def start(self, seed: int) -> None:
        """Set the game up. Raises ConfigError if it cannot be."""
        self.unread = [""] * self.players
        problem = self._run(lambda: self._set_up(seed))
        if problem:
            raise ConfigError(f"TextArena cannot set up {self.game!r}: {problem}")
        self._collect()

    def play(self, action: str) -> None:
        """The mover's action; a game that raises is over and `broken`."""
        self.broken = self._run(lambda: self._step(action))
        self.over = self.over or bool(self.broken)
        self._collect()

    def read(self, player: int) -> str:
        """What was said to the player since the last reading."""
        text, self.unread[player] = self.unread[player].strip("\n"), ""
        return text[-LONGEST:]

    def rewards(self) -> dict[int, float]:
        """Each player's reward, 0 where the game names none."""
        named = self.env.state.rewards or {}
        return {player: float(named.get(player, 0.0)) for player in range(self.players)}

    def made_invalid_move(self, player: int) -> bool:
        """Whether the game ended because of the player's invalid move."""
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
        """What the call raises, "" for nothing; in the match's own generators."""
        with lent_generators(self.state) as left:
            try:
                call()
                problem = ""
            # Games trust the form of what is typed, and break in as many ways as there are games.
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        self.state = left[0]
        return problem

    def _collect(self) -> None:
        for player in range(self.players):
            said = self.env.state.observations.get(player, [])
            self.unread[player] += "".join(f"{message}\n" for _, message, _ in said)
            self.env.state.observations[player] = []


def new_match(game: str, players: int, seed: int) -> Match:
    """A match at its start; equal seeds give equal matches."""
    match = Match(game, players, seeded_state(seed))
    match.start(seed)
    return match


def known_game(game: str) -> Any:  # noqa: ANN401 (not typed)
    """TextArena's registration. Raises ConfigError without the package or the game."""
    registry = needed("textarena.envs.registration", install="ludic-gym[adapters]").ENV_REGISTRY
    with contextlib.suppress(KeyError):
        return registry[game]
    near = sorted(name for name in registry if name.partition("-")[0] == game.partition("-")[0])
    raise ConfigError(f"TextArena has no game {game!r}; near to it: {', '.join(near) or 'none'}")


def bare_game(game: str) -> Any:  # noqa: ANN401 (not typed)
    """A new game without TextArena's wrappers, whose observations grow without end."""
    spec = known_game(game)
    module, _, name = spec.entry_point.partition(":")
    return getattr(needed(module, install="ludic-gym[adapters]"), name)(**spec.kwargs)


def takes_brackets(game: str) -> bool:
    """Whether TextArena puts an action in brackets for a player who forgets them."""
    wrappers = known_game(game).default_wrappers or []
    return any(wrapper.__name__ == "ActionFormattingWrapper" for wrapper in wrappers)
