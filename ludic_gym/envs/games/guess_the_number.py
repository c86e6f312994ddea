"""Guess the Number: search an interval by comparisons."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import between, checked_range
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv
from ludic_gym.envs.core.splits import Split

LARGEST = 9999
LONGEST_GUESS = 4


class GuessTheNumberEnv(SolitaireEnv):
    """Find a hidden number by guesses.

    - Observation: the guesses so far, each with "higher", "lower" or "correct", and the number of
      guesses left.
    - Action: a number from 1 to `high`.
    - Reward and info: see `SolitaireEnv`.

    Args:
        high: largest number that can be hidden.
        turns: number of guesses; 0 for the most that a binary search needs.
        split: "train" and "test" have no number in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    Guesses left: 7
    > 50
    50: lower
    Guesses left: 6
    > 25
    50: lower
    25: correct
    Guesses left: 5             (reward 1)
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
        self.prompt = (
            f"Guess a number from 1 to {self._high}. Each guess is answered by whether the number "
            f"is higher or lower. Guesses: {self.turns}. Reply with just the number."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a number."""
        self._number = between(rng, 1, self._high)
        self._guesses: list[int] = []
        # The lines of the hints, so that a turn costs the same however many there are.
        self._lines: list[str] = []

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
        self._guesses.append(guess)
        self._lines.append(f"{guess}: {self._hint(guess)}")
        return "win" if guess == self._number else ""

    def view(self) -> str:
        """The guesses and their hints."""
        return "\n".join([*self._lines, f"Guesses left: {self.turns_left}"])

    def _hint(self, guess: int) -> str:
        if guess == self._number:
            return "correct"
        return "higher" if self._number > guess else "lower"

    def allowed_actions(self) -> tuple[str, ...]:
        """All numbers of the range."""
        return tuple(map(str, range(1, self._high + 1)))

    def best_action(self) -> str:
        """The middle of the interval that is left (binary search)."""
        low = max((g for g in self._guesses if g < self._number), default=0)
        high = min((g for g in self._guesses if g > self._number), default=self._high + 1)
        return str((low + high) // 2)
