"""Hangman: find a word letter by letter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from ludic_gym.data.row import words
from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv

HANGMAN_WORDS = Path(__file__).parents[1] / "data" / "hangman_words.txt"


class HangmanEnv(SolitaireEnv):
    """Find a hidden English word by guessing its letters.

    Only wrong letters and illegal actions cost a life (a turn of `SolitaireEnv`).

    - Observation: the word with _ for unknown letters, the wrong letters, and the lives left.
    - Action: a letter that was not guessed before, in either case.
    - Reward and info: see `SolitaireEnv`.

    Args:
        lives: number of wrong letters that lose the game.
        split: "train" and "test" have no word in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    Word: _ _ _ _ _
    Wrong letters: none
    Lives left: 6
    > e
    Word: _ _ _ _ e
    Wrong letters: none
    Lives left: 6
    > s
    Word: _ _ _ _ e
    Wrong letters: s
    Lives left: 5
    ```
    """

    reply_form = "a letter that you have not guessed yet, such as e"

    def __init__(
        self, lives: int = 6, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        super().__init__(lives, render_mode, split=split)
        self.prompt = (
            "Find the hidden English word. Guess one letter at a time; a letter that is not in "
            f"the word costs one of {self.turns} lives. Reply with just {self.reply_form}."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a word."""
        self._word = pick(rng, words(HANGMAN_WORDS))
        self._guessed = ""

    def game(self) -> str:
        """The word."""
        return self._word

    def move(self, action: str) -> Outcome:
        """Guess a letter."""
        letter = action.lower()
        if letter not in self.allowed_actions():
            return "illegal"
        self._guessed += letter
        if letter not in self._word:
            return ""
        # The base class has taken a turn; only a wrong letter costs one.
        self.turns_left += 1
        return "win" if set(self._word) <= set(self._guessed) else ""

    def view(self) -> str:
        """The word with gaps, the wrong letters and the lives."""
        wrong = " ".join(letter for letter in self._guessed if letter not in self._word)
        word = " ".join(masked(self._word, self._guessed))
        return f"Word: {word}\nWrong letters: {wrong or 'none'}\nLives left: {self.turns_left}"

    def allowed_actions(self) -> tuple[str, ...]:
        """Letters that were not guessed yet."""
        return tuple(letter for letter in ascii_lowercase if letter not in self._guessed)

    def best_action(self) -> str:
        """The letter that occurs in most of the bundled words that fit."""
        known = masked(self._word, self._guessed)
        fitting = (word for word in words(HANGMAN_WORDS) if masked(word, self._guessed) == known)
        # A letter once per word: the one that most words have is most likely right.
        counts = Counter(letter for word in fitting for letter in set(word))
        return max(self.allowed_actions(), key=lambda letter: counts[letter])


def masked(word: str, guessed: str) -> str:
    """The word with _ for each letter that is not in `guessed`."""
    return "".join(letter if letter in guessed else "_" for letter in word)
