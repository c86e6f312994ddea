"""Guess the Number: search an interval by comparisons."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv, checked_range
from ludic_gym.envs.questions.arithmetic import between

LARGEST = 9999
LONGEST_GUESS = 4


class GuessTheNumberEnv(SolitaireEnv):
    """Find a hidden number; every guess is answered by "higher" or "lower".

    high: the number is from 1 to high.
    turns: how many guesses there are; 0 for as many as halving the interval needs at most.

    Observation: the guesses so far with their answers, and how many are left. Action: a number.

        Guesses left: 7
    50
        50: lower
        Guesses left: 6
    25
        50: lower
        25: correct
        Guesses left: 5        (reward 1)
    """

    def __init__(self, high: int = 100, turns: int = 0, render_mode: str | None = None) -> None:
        self._high = checked_range("high", high, 2, LARGEST)
        super().__init__(turns or high.bit_length(), render_mode)

    def _prompt(self) -> str:
        return (
            f"Guess a number from 1 to {self._high}. Each guess is answered by whether the number "
            f"is higher or lower. Guesses: {self._turns}. Reply with just the number."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        self._number = between(rng, 1, self._high)
        self._guesses: list[int] = []

    def _play(self, action: str) -> Outcome:
        if not (action.isascii() and action.isdecimal() and len(action) <= LONGEST_GUESS):
            return "illegal"
        guess = int(action)
        if not 1 <= guess <= self._high:
            return "illegal"
        self._guesses.append(guess)
        return "win" if guess == self._number else ""

    def _view(self) -> str:
        lines = [f"{guess}: {self._answer(guess)}" for guess in self._guesses]
        return "\n".join([*lines, f"Guesses left: {self._turns_left}"])

    def _answer(self, guess: int) -> str:
        if guess == self._number:
            return "correct"
        return "higher" if self._number > guess else "lower"

    def _legal(self) -> tuple[str, ...]:
        return tuple(map(str, range(1, self._high + 1)))

    def _best(self) -> str:
        low = max((g for g in self._guesses if g < self._number), default=0)
        high = min((g for g in self._guesses if g > self._number), default=self._high + 1)
        return str((low + high) // 2)
