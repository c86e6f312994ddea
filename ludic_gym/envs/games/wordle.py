"""Wordle: find a word of five letters from the colours of each guess."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from ludic_gym.data.row import words
from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv

WORDS = Path(__file__).parents[1] / "data" / "wordle_words.txt"
LENGTH = 5
RIGHT, ELSEWHERE, ABSENT = "GY-"


class WordleEnv(SolitaireEnv):
    """Find a hidden English word of five letters.

    turns: how many guesses there are.

    Observation: the guesses so far, each with one mark per letter: G for the right place, Y for
    a letter that is in the word elsewhere, - for one that is not. A letter is marked no more
    often than the word has it. Action: any five letters, of the bundled words or not.

        Guesses left: 6
    crane
        crane -YG--
        Guesses left: 5
    roads
        crane -YG--
        roads GGGGG
        Guesses left: 4        (reward 1)
    """

    def __init__(self, turns: int = 6, render_mode: str | None = None) -> None:
        super().__init__(turns, render_mode)

    def _prompt(self) -> str:
        return (
            "Find the hidden English word of five letters. Each guess is answered by a mark per "
            "letter: G if it is in the right place, Y if it is in the word elsewhere, - if it is "
            f"not in the word. Guesses: {self._turns}. Reply with just a word of five letters."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        self._word = pick(rng, words(WORDS))
        self._marks: dict[str, str] = {}

    def _play(self, action: str) -> Outcome:
        guess = action.lower()
        if len(guess) != LENGTH or not (guess.isascii() and guess.isalpha()):
            return "illegal"
        self._marks[guess] = marks(guess, self._word)
        return "win" if guess == self._word else ""

    def _view(self) -> str:
        lines = (f"{guess} {said}" for guess, said in self._marks.items())
        return "\n".join([*lines, f"Guesses left: {self._turns_left}"])

    def _legal(self) -> tuple[str, ...]:
        return words(WORDS)

    def _best(self) -> str:
        """Of the words that fit, the one that tells most of them apart."""
        return best_guess(tuple(self._marks.items()))


def marks(guess: str, word: str) -> str:
    """One mark per letter of the guess; a letter of the word pays for one mark only."""
    said = [RIGHT if a == b else ABSENT for a, b in zip(guess, word, strict=True)]
    rest = [b for a, b in zip(guess, word, strict=True) if a != b]
    for i, letter in enumerate(guess):
        if said[i] == ABSENT and letter in rest:
            said[i] = ELSEWHERE
            rest.remove(letter)
    return "".join(said)


@lru_cache(maxsize=2**10)
def best_guess(said: tuple[tuple[str, str], ...]) -> str:
    """Of the words that fit what was said, the first that splits them into most groups."""
    fitting = [
        word for word in words(WORDS) if all(marks(guess, word) == given for guess, given in said)
    ]
    return max(fitting, key=lambda guess: len({marks(guess, word) for word in fitting}))
