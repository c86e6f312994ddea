"""Hangman: find a word letter by letter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from ludic_gym.data.row import words
from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv

WORDS = Path(__file__).parents[1] / "data" / "hangman_words.txt"


class HangmanEnv(SolitaireEnv):
    """Find a hidden English word by guessing its letters.

    lives: how many wrong letters lose the game.

    Observation: the word with the letters that are still unknown as _, the wrong letters, and the
    lives. Action: a letter that was not guessed before; anything else costs a life too.

        _ _ _ _ _
        Wrong:
        Lives: 6
    e
        _ _ _ _ e
        Wrong:
        Lives: 6
    s
        _ _ _ _ e
        Wrong: s
        Lives: 5
    """

    def __init__(self, lives: int = 6, render_mode: str | None = None) -> None:
        super().__init__(lives, render_mode)

    def _prompt(self) -> str:
        return (
            "Find the hidden English word. Guess one letter at a time; a letter that is not in "
            f"the word costs one of {self._turns} lives. Reply with just the letter."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        self._word = pick(rng, words(WORDS))
        self._guessed = ""

    def _play(self, action: str) -> Outcome:
        letter = action.lower()
        if letter not in self._legal():
            return "illegal"
        self._guessed += letter
        if letter not in self._word:
            return ""
        # Only what is wrong costs a life.
        self._turns_left += 1
        return "win" if set(self._word) <= set(self._guessed) else ""

    def _view(self) -> str:
        wrong = " ".join(letter for letter in self._guessed if letter not in self._word)
        word = " ".join(masked(self._word, self._guessed))
        return f"{word}\nWrong: {wrong}".rstrip() + f"\nLives: {self._turns_left}"

    def _legal(self) -> tuple[str, ...]:
        return tuple(letter for letter in ascii_lowercase if letter not in self._guessed)

    def _best(self) -> str:
        """The letter that is in most of the bundled words that fit."""
        shown = masked(self._word, self._guessed)
        fitting = (word for word in words(WORDS) if masked(word, self._guessed) == shown)
        counts = Counter(letter for word in fitting for letter in sorted(set(word)))
        return max(self._legal(), key=lambda letter: counts[letter])


def masked(word: str, guessed: str) -> str:
    """The word with _ for every letter that was not guessed."""
    return "".join(letter if letter in guessed else "_" for letter in word)
