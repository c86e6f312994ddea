"""Twenty Questions: find out by questions what somebody thinks of."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from ludic_gym.envs.core.base import one_line, pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv
from ludic_gym.envs.games.answerer import Answer, answer, tokens_of
from ludic_gym.envs.games.things import attributes, things

# More of a question is not shown.
LONGEST_SHOWN = 200
_GUESS = re.compile(
    r"\s*(?:(?:my|final)\s+)*(?:guess|answer)(?:\s+is)?\s*:?(?P<name>\s.*)", re.DOTALL
)


class TwentyQuestionsEnv(SolitaireEnv):
    """Find out which of 262 everyday things is meant, by questions with yes or no for an answer.

    questions: how many turns there are, the guess included.

    The thing is an animal, a plant, something to eat, something made by people or a part of
    nature. Observation: what was asked so far, with the answers. Action: a question, such as "Is
    it alive?", "Does it have wheels?", "Is it made of wood or metal?" or "Is it a cat?"; or "guess:
    cat", which ends the game. Some 80 attributes are understood in many wordings; what is not
    understood gets "I don't know" and takes a turn too, and so does a question with "not" or a
    comparison with anything but a person. Reward: 1 for the right guess, else 0.

        1. Is it alive? yes
        2. Does it have feathers? no
        Turns left: 18
    guess: dog             (reward 1)
    """

    def __init__(self, questions: int = 20, render_mode: str | None = None) -> None:
        super().__init__(questions, render_mode)

    def _prompt(self) -> str:
        return (
            "I think of an everyday thing: an animal, a plant, something to eat, something made by "
            f"people, or a part of nature. Find out which. You have {self._turns} turns: in each "
            "one ask me a short question that yes or no answers, or write 'guess: ' and the name "
            "of the thing. A guess ends the game."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        self._thing = pick(rng, tuple(things()))
        self._asked: tuple[tuple[str, Answer], ...] = ()
        self._guess = ""

    def _play(self, action: str) -> Outcome:
        if (name := guessed(action)) is not None:
            self._guess = one_line(name, LONGEST_SHOWN)
            return "win" if tokens_of(name) == tokens_of(self._thing) else "loss"
        shown = one_line(action, LONGEST_SHOWN)
        self._asked = (*self._asked, (shown, answer(action, self._thing)))
        return ""

    def _view(self) -> str:
        lines = [
            f"{number}. {question} {said}" for number, (question, said) in enumerate(self._asked, 1)
        ]
        if self._guess or not self._turns_left:
            return "\n".join([*lines, f"It was: {self._thing}"])
        return "\n".join([*lines, f"Turns left: {self._turns_left}"])

    def _legal(self) -> tuple[str, ...]:
        return ()

    def _best(self) -> str:
        """The question that halves the things that fit best; a guess where only one fits."""
        told = tuple(pair for pair in self._asked if pair[1] != "I don't know")
        return best_action(told, is_last=self._turns_left == 1)


@lru_cache(maxsize=2**14)
def best_action(told: tuple[tuple[str, Answer], ...], *, is_last: bool) -> str:
    """What to say after these answers: the most telling question, or a guess."""
    fitting = [n for n in things() if all(answer(question, n) == said for question, said in told)]
    if len(fitting) == 1 or is_last:
        return f"guess: {fitting[0]}"
    facts = [things()[name] for name in fitting]
    counts = {a.question: sum(name in f for f in facts) for name, a in attributes().items()}
    question = min(counts, key=lambda q: abs(2 * counts[q] - len(fitting)))
    is_useful = 0 < counts[question] < len(fitting)
    return question if is_useful else f"Is it a {fitting[0]}?"


def guessed(text: str) -> str | None:
    """The name in "guess: a cat" or "my guess is a cat"; None for a question."""
    match = _GUESS.fullmatch(text.casefold()[: 2 * LONGEST_SHOWN])
    return match["name"].strip() if match else None
