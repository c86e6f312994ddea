"""SolitaireEnv: one-player games of several turns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import (
    TextEnv,
    Turn,
    checked_choice,
    checked_range,
    end,
    proceed,
)
from ludic_gym.envs.core.replies import refusal, said, undecorated
from ludic_gym.envs.core.splits import SPLITS, Split, drawn

# Result of a move; "" if the game continues.
Outcome = Literal["", "win", "loss", "illegal"]


class SolitaireEnv(TextEnv):
    """A one-player game that is won within a number of turns.

    A subclass sets `prompt` and writes `deal`, `move` and `view`, and for random and oracle
    policies `allowed_actions` and `best_action`. One with the argument `split` writes `game`.

    - Observation: the position, or where it is a list of hints the newest of them; after an illegal
      action, before it, the legal actions or the form of one.
    - Action: one of `legal_actions()`; an illegal one uses up a turn and changes nothing else.
      A thought before it, and quotes, Markdown and punctuation around it are ignored.
    - Reward: 1 for a win (component "win"), else 0.
    - Info: "illegal" in every step; "outcome" ("win" or "loss") in the last one.

    Attributes:
        prompt: system prompt with the rules and the reply format.
        reply_form: the form of a legal action with an example, for the feedback on an illegal one;
            "" for none.
        turns: number of turns of an episode.
        turns_left: turns that are left; decreases before each `move`.

    >>> class Coin(SolitaireEnv):
    ...     prompt, reply_form = "Guess the coin.", "heads or tails"
    ...
    ...     def deal(self, rng):
    ...         self.side = "heads"
    ...
    ...     def view(self):
    ...         return f"Guesses left: {self.turns_left}."
    ...
    ...     def move(self, action):
    ...         return "win" if action == self.side else "" if action == "tails" else "illegal"
    >>> env = Coin(turns=3)
    >>> env.reset(seed=1)[0], env.step("tails")[0]
    ('Guesses left: 3.', 'Guesses left: 2.')
    >>> env.step("heads.")[1:3]
    (1.0, True)
    """

    prompt: str
    reply_form: str = ""

    def __init__(self, turns: int, render_mode: str | None = None, *, split: Split = "all") -> None:
        super().__init__(render_mode)
        self._split = checked_choice("split", split, SPLITS)
        self.turns = checked_range("turns", turns, 1, 10_000)
        self.turns_left = self.turns

    @abstractmethod
    def deal(self, rng: np.random.Generator) -> None:
        """Set up a new game."""

    @abstractmethod
    def move(self, action: str) -> Outcome:
        """Play the action, which is stripped of surrounding white space."""

    @abstractmethod
    def view(self) -> str:
        """The position as the player sees it."""

    def game(self) -> str:
        """A text that equal games have in common, after `deal`; it decides the split of the game.

        By default the first view, which is enough where the player sees everything.
        """
        return self.view()

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Deal a new game of the split."""
        self.turns_left = self.turns
        drawn(lambda: self.deal(self.np_random), self._split, lambda _: self.game())
        return self.view(), self.prompt

    def turn(self, action: str) -> Turn:
        """Play the action."""
        # Before the move, so that the view shows what is left, and a game can give a turn back.
        self.turns_left -= 1
        outcome = self._moved(action)
        illegal = outcome == "illegal"
        text = self.view()
        if illegal:
            text = f"{refusal(self.allowed_actions(), self.reply_form)}\n{text}"
        # A win or a loss on the last turn counts: it is decided before the turns are.
        if (illegal or not outcome) and self.turns_left > 0:
            return proceed(text, 0.0, {"illegal": illegal})
        won = outcome == "win"
        info = {"illegal": illegal, "outcome": "win" if won else "loss"}
        return end(text, success=won, info=info, win=won)

    def _moved(self, text: str) -> Outcome:
        """The result of the action in a text of the player."""
        action = said(text).strip()
        outcome = self.move(action)
        plain = undecorated(action) if outcome == "illegal" else ""
        # An illegal move changes nothing, so there can be a second one.
        return self.move(plain) if plain not in ("", action) else outcome


def guesses_left(count: int) -> str:
    """The sentence on the number of guesses.

    >>> guesses_left(1)
    'You have 1 guess left.'
    """
    return f"You have {count} guess{'es' * (count != 1)} left."
