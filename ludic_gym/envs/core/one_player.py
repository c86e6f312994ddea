"""OnePlayerEnv: a two-player game as a Gymnasium environment, with a scripted opponent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal

import numpy as np

from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, ending, pick
from ludic_gym.envs.core.game import Game, S, perfect_action, random_action
from ludic_gym.errors import NoOracle

# How a scripted opponent moves; one of several is drawn for every episode.
Reply = Callable[[Game[Any], Any, np.random.Generator], str]
OPPONENTS: Mapping[str, tuple[Reply, ...]] = {
    "random": (random_action,),
    "perfect": (perfect_action,),
    "mixed": (random_action, perfect_action),
}
_SEATS = {"first": (0,), "second": (1,), "random": (0, 1)}


class OnePlayerEnv(TextEnv, Generic[S]):
    """Play a seat of `game`; a subclass names the game, and its `opponents` if they are others.

    opponent: "random", "perfect" (any of its best moves, each as likely), or "mixed": one of the
        two, drawn for every episode.
    seat: whether the agent moves "first" or "second", or "random": drawn for every episode.
    draw_reward: the reward of a draw; a win earns 1, a loss -1, an illegal action -1 and the end.

    The last info has "outcome", one of "win", "draw", "loss", "illegal"; success is a win.
    """

    game: Game[S]
    opponents: ClassVar[Mapping[str, tuple[Reply, ...]]] = OPPONENTS

    def __init__(
        self,
        opponent: str = "random",
        seat: Literal["first", "second", "random"] = "first",
        draw_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._opponents = self.opponents[
            checked_choice("opponent", opponent, tuple(self.opponents))
        ]
        self._seats = _SEATS[checked_choice("seat", seat, tuple(_SEATS))]
        self._draw_reward = float(draw_reward)

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        self._row(options)
        rng = self.np_random
        self._opponent = pick(rng, self._opponents)
        self._seat = pick(rng, self._seats)
        self._state = self._answered(self.game.initial(rng))
        prompt = self.game.system_prompt(self._seat)
        return self.game.observation(self._state, self._seat), {"system_prompt": prompt}

    def _advance(self, action: str) -> Turn:
        action = self.game.read(action)
        if not self.game.is_allowed(self._state, action):
            return self._end("illegal", False, -1.0)
        self._state = self._answered(self.game.play(self._state, action))
        result = self.game.returns(self._state)
        if result is None:
            return self.game.observation(self._state, self._seat), 0.0, False, False, {}
        outcome, success = self.game.end(self._state, self._seat)
        return self._end(outcome, success, result[self._seat] or self._draw_reward)

    def _answered(self, state: S) -> S:
        """The state once it is the agent's turn, or the game is over."""
        game = self.game
        while game.returns(state) is None and game.mover(state) != self._seat:
            state = game.play(state, self._opponent(game, state, self.np_random))
        return state

    def _end(self, outcome: str, success: bool, value: float) -> Turn:
        parts = {"outcome": value, **self._extras(outcome)}
        info = ending(success=success, **parts)
        info["outcome"] = outcome
        reward = sum(parts.values())
        return self.game.observation(self._state, self._seat), reward, True, False, info

    def _extras(self, outcome: str) -> dict[str, float]:
        """What the end earns besides the game's own return, by name."""
        return {}

    def legal_actions(self) -> tuple[str, ...]:
        """What the agent may do now; nothing once the game is over."""
        return self.game.legal_actions(self._state) if self._running else ()

    def oracle_action(self) -> str:
        """The action of perfect play that wins most often against random replies."""
        if not self._running:
            raise NoOracle(f"{self.game.name}: no game is running; call reset() first")
        return self.game.best_actions(self._state)[0]
