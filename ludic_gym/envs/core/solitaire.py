"""SolitaireEnv: what the one-player games of several turns share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import Info, TextEnv, Turn, ending
from ludic_gym.errors import ConfigError, NoOracle

# What an action came to: "" where the game goes on.
Outcome = Literal["", "win", "loss", "illegal"]


class SolitaireEnv(TextEnv):
    """A game for one player, to be won within a number of turns.

    A win earns 1, everything else nothing. An action that is not legal changes nothing, but takes
    a turn. The observation shows the whole position, so the newest one is enough to go on.
    Every step's info has "illegal"; the last one has "outcome" too, "win" or "loss".

    A subclass sets the game up (`_deal`), plays an action (`_play`) and shows the position
    (`_view`); `_turns_left` counts down by itself.
    """

    def __init__(self, turns: int, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._turns = checked_range("turns", turns, 1, 10_000)
        self._turns_left = self._turns

    @abstractmethod
    def _deal(self, rng: np.random.Generator) -> None:
        """Set up a new game."""

    @abstractmethod
    def _play(self, action: str) -> Outcome:
        """Play the action, which has no white space around it."""

    @abstractmethod
    def _view(self) -> str:
        """The position."""

    @abstractmethod
    def _prompt(self) -> str:
        """The rules and the reply format."""

    @abstractmethod
    def _legal(self) -> tuple[str, ...]:
        """The actions that are legal while the game goes on."""

    @abstractmethod
    def _best(self) -> str:
        """The action of good play, told from what the player sees."""

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        self._row(options)
        self._turns_left = self._turns
        self._deal(self.np_random)
        return self._view(), {"system_prompt": self._prompt()}

    def _advance(self, action: str) -> Turn:
        self._turns_left -= 1
        outcome = self._play(action.strip())
        illegal = outcome == "illegal"
        text = f"That is not a legal action.\n{self._view()}" if illegal else self._view()
        if outcome not in ("win", "loss") and self._turns_left > 0:
            return text, 0.0, False, False, {"illegal": illegal}
        won = outcome == "win"
        info = {**ending(success=won, win=float(won)), "illegal": illegal}
        info["outcome"] = "win" if won else "loss"
        return text, float(won), True, False, info

    def legal_actions(self) -> tuple[str, ...]:
        """What is legal now; nothing once the game is over."""
        return self._legal() if self._running else ()

    def oracle_action(self) -> str:
        """The action of good play, told from what the player sees. Raises NoOracle at the end."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no game is running; call reset() first")
        return self._best()


def checked_range(name: str, value: int, low: int, high: int) -> int:
    """The value itself. Raises ConfigError unless it is an int from low to high."""
    if not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is an int from {low} to {high}, got {value!r}")
    return value
