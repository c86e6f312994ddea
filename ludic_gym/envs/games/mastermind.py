"""Mastermind: find a code from how many letters of each guess are right."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from string import ascii_uppercase

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv, checked_range
from ludic_gym.errors import ConfigError

MOST_CODES = 10_000


class MastermindEnv(SolitaireEnv):
    """Find a hidden code of letters, which may repeat.

    letters: how many letters there are, from A on.
    length: how many letters the code has.
    turns: how many guesses there are.

    Observation: the guesses so far, each with how many letters are in the right place, and how
    many others are in the code but elsewhere. Action: a code.

        Guesses left: 10
    AABB
        AABB: 1 in place, 1 elsewhere
        Guesses left: 9
    ACAD
        AABB: 1 in place, 1 elsewhere
        ACAD: 4 in place, 0 elsewhere
        Guesses left: 8        (reward 1)
    """

    def __init__(
        self, letters: int = 6, length: int = 4, turns: int = 10, render_mode: str | None = None
    ) -> None:
        super().__init__(turns, render_mode)
        self._letters = ascii_uppercase[: checked_range("letters", letters, 2, 26)]
        self._length = checked_range("length", length, 1, 13)
        if letters**length > MOST_CODES:
            raise ConfigError(
                f"letters={letters} to the power of length={length} is above {MOST_CODES} codes; "
                "make one of them smaller"
            )

    def _prompt(self) -> str:
        return (
            f"Find the hidden code of {self._length} letters from {self._letters[0]} to "
            f"{self._letters[-1]}; letters may repeat. Each guess is answered by how many letters "
            "are in the right place and how many others are in the code elsewhere. "
            f"Guesses: {self._turns}. Reply with just the {self._length} letters."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        self._code = "".join(pick(rng, self._letters) for _ in range(self._length))
        self._answers: dict[str, tuple[int, int]] = {}

    def _play(self, action: str) -> Outcome:
        guess = action.upper()
        if len(guess) != self._length or not set(guess) <= set(self._letters):
            return "illegal"
        self._answers[guess] = answer(guess, self._code)
        return "win" if guess == self._code else ""

    def _view(self) -> str:
        lines = (
            f"{guess}: {places} in place, {elsewhere} elsewhere"
            for guess, (places, elsewhere) in self._answers.items()
        )
        return "\n".join([*lines, f"Guesses left: {self._turns_left}"])

    def _legal(self) -> tuple[str, ...]:
        return all_codes(self._letters, self._length)

    def _best(self) -> str:
        """The first code that fits all answers: at most 9 guesses for 6 letters in 4 places."""
        return next(
            code
            for code in all_codes(self._letters, self._length)
            if all(answer(guess, code) == said for guess, said in self._answers.items())
        )


def answer(guess: str, code: str) -> tuple[int, int]:
    """How many letters are in the right place, and how many others are in the code."""
    places = sum(a == b for a, b in zip(guess, code, strict=True))
    return places, (Counter(guess) & Counter(code)).total() - places


@cache
def all_codes(letters: str, length: int) -> tuple[str, ...]:
    """Every code, in alphabetical order."""
    return tuple(map("".join, product(letters, repeat=length)))
