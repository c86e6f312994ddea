"""Hangman and Wordle: a hidden word, found by letters or by guesses."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from ludic_gym.data.row import words
from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv, guesses_left

HANGMAN_WORDS = Path(__file__).parents[1] / "data" / "hangman_words.txt"


class HangmanEnv(SolitaireEnv):
    """Find a hidden English word by guessing its letters.

    Only wrong letters and illegal actions cost a life (a turn of `SolitaireEnv`).

    - Observation: the word with _ for unknown letters, the wrong letters, and the lives left.
    - Action: a letter that was not guessed before, in either case.
    - Reward and info: see `SolitaireEnv`.

    Args:
        lives: number of wrong letters that lose the game.
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
        self.word = pick(rng, words(HANGMAN_WORDS))
        self._guessed = ""

    def game(self) -> str:
        """The word."""
        return self.word

    def move(self, action: str) -> Outcome:
        """Guess a letter."""
        letter = action.lower()
        if letter not in self.allowed_actions():
            return "illegal"
        self._guessed += letter
        if letter not in self.word:
            return ""
        # The base class has taken a turn; only a wrong letter costs one.
        self.turns_left += 1
        return "win" if set(self.word) <= set(self._guessed) else ""

    def view(self) -> str:
        """The word with gaps, the wrong letters and the lives."""
        wrong = " ".join(letter for letter in self._guessed if letter not in self.word)
        word = " ".join(mask_word(self.word, self._guessed))
        return f"Word: {word}\nWrong letters: {wrong or 'none'}\nLives left: {self.turns_left}"

    def allowed_actions(self) -> tuple[str, ...]:
        """Letters that were not guessed yet."""
        return tuple(letter for letter in ascii_lowercase if letter not in self._guessed)

    def best_action(self) -> str:
        """The letter that occurs in most of the bundled words that fit."""
        masked = mask_word(self.word, self._guessed)
        fitting = (
            word for word in words(HANGMAN_WORDS) if mask_word(word, self._guessed) == masked
        )
        # A letter once per word: the one that most words have is most likely right.
        counts = Counter(letter for word in fitting for letter in set(word))
        return max(self.allowed_actions(), key=lambda letter: counts[letter])


def mask_word(word: str, guessed: str) -> str:
    """The word with _ for each letter that is not in `guessed`."""
    return "".join(letter if letter in guessed else "_" for letter in word)


WORDLE_WORDS = Path(__file__).parents[1] / "data" / "wordle_words.txt"
LENGTH = 5
RIGHT, ELSEWHERE, ABSENT = "GY-"


class WordleEnv(SolitaireEnv):
    """Find a hidden English word of five letters.

    - Observation: the last guess with one mark per letter: G for the right place, Y for a letter
      elsewhere in the word, - for one that is not in the word. A letter has no more marks than the
      word has of it. Then the number of guesses left.
    - Action: any five letters, in either case; `legal_actions()` has the bundled words.
    - Reward and info: see `SolitaireEnv`.

    Args:
        turns: number of guesses.
    """

    reply_form = "a word of five letters, such as stone"
    action_pattern = r"[a-z]{5}"

    def __init__(
        self, turns: int = 6, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        super().__init__(turns, render_mode, split=split)
        self.prompt = (
            "Find the hidden English word of five letters. Each letter of a guess gets a mark: "
            "G if it is in the right place, Y if it is elsewhere in the word, - if it is not in "
            f"the word. You have {self.turns} guesses. Reply with just {self.reply_form}."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a word."""
        self.word = pick(rng, words(WORDLE_WORDS))
        self._marks: dict[str, str] = {}
        self._guess = ""

    def game(self) -> str:
        """The word."""
        return self.word

    def move(self, action: str) -> Outcome:
        """Guess a word."""
        guess = action.lower()
        if len(guess) != LENGTH or not (guess.isascii() and guess.isalpha()):
            return "illegal"
        self._guess = guess
        self._marks[guess] = marks(guess, self.word)
        return "win" if guess == self.word else ""

    def view(self) -> str:
        """The last guess and its marks, and the guesses left."""
        left = guesses_left(self.turns_left)
        return f"{self._guess} {self._marks[self._guess]}\n{left}" if self._guess else left

    def picture(self) -> str:
        """All guesses with their marks."""
        lines = (f"{guess} {signs}" for guess, signs in self._marks.items())
        return "\n".join([*lines, guesses_left(self.turns_left)])

    def allowed_actions(self) -> tuple[str, ...]:
        """The bundled words."""
        return words(WORDLE_WORDS)

    def best_action(self) -> str:
        """The fitting word whose marks distinguish most of the fitting words."""
        return best_guess(tuple(self._marks.items()))


def marks(guess: str, word: str) -> str:
    """One mark per letter of the guess; each letter of the word gives one mark only."""
    signs = [RIGHT if a == b else ABSENT for a, b in zip(guess, word, strict=True)]
    # Letters of the word that have no mark yet: a letter in its place is used up.
    rest = [b for a, b in zip(guess, word, strict=True) if a != b]
    for i, letter in enumerate(guess):
        if signs[i] == ABSENT and letter in rest:
            signs[i] = ELSEWHERE
            rest.remove(letter)
    return "".join(signs)


# Compares all pairs of fitting words, which at the start are all bundled ones.
@lru_cache(maxsize=2**10)
def best_guess(guesses: tuple[tuple[str, str], ...]) -> str:
    """The first of the fitting words whose marks split them into most groups.

    guesses: pairs of a guess and its marks.
    """
    fitting = [
        word for word in words(WORDLE_WORDS) if all(marks(guess, word) == m for guess, m in guesses)
    ]
    letters = np.frombuffer("".join(fitting).encode(), np.uint8).reshape(-1, LENGTH)
    by_place = np.ascontiguousarray(letters.T)
    return fitting[int(np.argmax([_groups(guess, by_place) for guess in letters]))]


def _groups(guess: NDArray[np.uint8], by_place: NDArray[np.uint8]) -> int:
    """The number of different marks that a guess gets; by_place: letters [5, N] of all words.

    As `marks` has it, for all words at once: one by one, the first choice took two seconds.
    """
    right = by_place == guess[:, None]
    code = np.zeros(by_place.shape[1], np.uint8)
    for place, letter in enumerate(guess):
        rest = ((by_place == letter) & ~right).sum(0)
        earlier = (~right[:place][guess[:place] == letter]).sum(0)
        code = 3 * code + np.where(right[place], 2, rest > earlier)
    return len(set(code.tolist()))
