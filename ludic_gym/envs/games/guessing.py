"""Guess the Number and Mastermind: a hidden number or code, found by guesses."""

from __future__ import annotations

from functools import cache
from itertools import product
from operator import eq
from string import ascii_uppercase

import numpy as np

from ludic_gym.envs.core.base import checked_range, pick, random_int
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv, guesses_left
from ludic_gym.errors import ConfigError

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
        self.number = random_int(rng, 1, self._high)
        self._low, self._top = 1, self._high
        self._hint = ""

    def game(self) -> str:
        """The number."""
        return str(self.number)

    def move(self, action: str) -> Outcome:
        """Guess a number."""
        # The length is checked before int(), which refuses texts above 4,300 digits.
        if not (action.isascii() and action.isdecimal() and len(action) <= LONGEST_GUESS):
            return "illegal"
        guess = int(action)
        if not 1 <= guess <= self._high:
            return "illegal"
        if guess == self.number:
            self._hint = f"{guess} is correct."
            return "win"
        if guess < self.number:
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


# The legal actions are a tuple of all codes, and the oracle compares them with every hint.
MOST_CODES = 10_000


class MastermindEnv(SolitaireEnv):
    """Find a hidden code of letters, which may repeat.

    - Observation: of the last guess, the number of letters in the right place and the number of
      other letters that are elsewhere in the code; the number of guesses left.
    - Action: a code, in either case.
    - Reward and info: see `SolitaireEnv`.

    Args:
        letters: size of the alphabet, from A on.
        length: length of the code.
        turns: number of guesses.
    """

    def __init__(
        self,
        letters: int = 6,
        length: int = 4,
        turns: int = 10,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        super().__init__(turns, render_mode, split=split)
        self._letters = ascii_uppercase[: checked_range("letters", letters, 2, 26)]
        self._alphabet = frozenset(self._letters)
        self._length = checked_range("length", length, 1, 13)
        self.action_pattern = f"[{self._letters}]{{{self._length}}}"
        if letters**length > MOST_CODES:
            raise ConfigError(
                f"letters={letters} to the power of length={length} is above {MOST_CODES} codes; "
                "make one of them smaller"
            )
        example = (self._letters * self._length)[: self._length]
        self.reply_form = f"{self._length} letters, such as {example}"
        self.prompt = (
            f"Find the hidden code of {self._length} letters from {self._letters[0]} to "
            f"{self._letters[-1]}; letters may repeat. After each guess you are told how many of "
            "its letters are in the right place, and how many others are elsewhere in the code. "
            f"You have {self.turns} guesses. Reply with just {self.reply_form}."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a code."""
        self.code = "".join([pick(rng, self._letters) for _ in range(self._length)])
        self._hints: dict[str, tuple[int, int]] = {}
        self._guess = ""

    def game(self) -> str:
        """The code."""
        return self.code

    def move(self, action: str) -> Outcome:
        """Guess a code."""
        guess = action.upper()
        if len(guess) != self._length or not self._alphabet.issuperset(guess):
            return "illegal"
        if guess not in self._hints:
            self._hints[guess] = hint(guess, self.code)
        self._guess = guess
        return "win" if guess == self.code else ""

    def view(self) -> str:
        """The hint of the last guess, and the guesses left."""
        left = guesses_left(self.turns_left)
        return f"{self._line(self._guess)}. {left}" if self._guess else left

    def picture(self) -> str:
        """All guesses with their hints."""
        return "\n".join([*map(self._line, self._hints), guesses_left(self.turns_left)])

    def _line(self, guess: str) -> str:
        places, elsewhere = self._hints[guess]
        return f"{guess}: {places} in the right place, {elsewhere} elsewhere in the code"

    def allowed_actions(self) -> tuple[str, ...]:
        """All codes."""
        return all_codes(self._letters, self._length)

    def best_action(self) -> str:
        """The first code that fits all hints: at most 9 guesses for 6 letters in 4 places."""
        return next(
            code
            for code in all_codes(self._letters, self._length)
            if all(hint(guess, code) == answer for guess, answer in self._hints.items())
        )


def hint(guess: str, code: str) -> tuple[int, int]:
    """Number of letters in the right place, and of other letters that are in the code."""
    places = sum(map(eq, guess, code))
    # A repeated letter counts as often as both have it.
    both = sum([min(guess.count(letter), code.count(letter)) for letter in set(guess)])
    return places, both - places


@cache
def all_codes(letters: str, length: int) -> tuple[str, ...]:
    """All codes, in alphabetical order."""
    return tuple(map("".join, product(letters, repeat=length)))
