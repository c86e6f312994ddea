"""Guess the Number: search an interval by comparisons."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import between, checked_range
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv

LARGEST = 9999
LONGEST_GUESS = 4


class GuessTheNumberEnv(SolitaireEnv):
    """Find a hidden number by guesses.

    - Observation: if the last guess was too high or too low, the range that is left, and the number
      of guesses left.
    - Action: a number from 1 to `high`.
    - Reward and info: see `SolitaireEnv`.

    Args:
        high: largest number that can be hidden.
        turns: number of guesses; 0 for the most that a binary search needs.
        split: "train" and "test" have no number in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    The number is from 1 to 100. Guesses left: 7.
    > 50
    50 is too high. The number is from 1 to 49. Guesses left: 6.
    > 25
    25 is correct.              (reward 1)
    ```
    """

    def __init__(
        self,
        high: int = 100,
        turns: int = 0,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        self._high = checked_range("high", high, 2, LARGEST)
        # A binary search halves the interval with every guess.
        super().__init__(turns or high.bit_length(), render_mode, split=split)
        self.reply_form = f"a number, such as {(self._high + 2) // 3}"
        self.prompt = (
            f"Find the hidden number from 1 to {self._high}. After each guess you are told if it "
            f"is too high or too low. You have {self.turns} guesses. Reply with just "
            f"{self.reply_form}."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a number."""
        self._number = between(rng, 1, self._high)
        self._low, self._top = 1, self._high
        self._hint = ""

    def game(self) -> str:
        """The number."""
        return str(self._number)

    def move(self, action: str) -> Outcome:
        """Guess a number."""
        # The length is checked before int(), which refuses texts above 4,300 digits.
        if not (action.isascii() and action.isdecimal() and len(action) <= LONGEST_GUESS):
            return "illegal"
        guess = int(action)
        if not 1 <= guess <= self._high:
            return "illegal"
        if guess == self._number:
            self._hint = f"{guess} is correct."
            return "win"
        if guess < self._number:
            self._hint = f"{guess} is too low. "
            if guess >= self._low:
                self._low = guess + 1
        else:
            self._hint = f"{guess} is too high. "
            if guess <= self._top:
                self._top = guess - 1
        return ""

    def view(self) -> str:
        """The hint of the last guess, the range that is left, and the guesses left."""
        if self._hint.endswith("correct."):
            return self._hint
        left = f"The number is from {self._low} to {self._top}. Guesses left: {self.turns_left}."
        return self._hint + left

    def allowed_actions(self) -> tuple[str, ...]:
        """All numbers of the range."""
        return tuple(map(str, range(1, self._high + 1)))

    def best_action(self) -> str:
        """The middle of the interval that is left (binary search)."""
        return str((self._low + self._top) // 2)
