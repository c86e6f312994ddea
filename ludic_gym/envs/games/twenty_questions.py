"""Twenty Questions: find a hidden thing by yes-or-no questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.replies import one_line
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv
from ludic_gym.envs.core.splits import Split
from ludic_gym.envs.games.answerer import Answer, answer, tokens_of
from ludic_gym.envs.games.things import attributes, things

# Characters of a question in the observation.
LONGEST_QUESTION = 200
SENTENCES: Mapping[Answer, str] = {
    "yes": "Yes.",
    "no": "No.",
    "I don't know": "I do not know. Ask about one property in simple words, such as 'Is it alive?'",
}
_GUESS = re.compile(
    r"\s*(?:(?:my|final)\s+)*(?:guess|answer)(?:\s+is)?\s*:?(?P<name>\s.*)", re.DOTALL
)


class TwentyQuestionsEnv(SolitaireEnv):
    """Find a hidden thing, one of 262 everyday things, by yes-or-no questions.

    The thing is an animal, a plant, a food, an artefact or a part of nature. A parser of about 80
    attributes, each in many wordings, gives the answers. A question that it does not understand
    gets "I don't know" and uses up a turn; so do negations, and comparisons except with a person.

    - Observation: the answer to the last question, and the number of turns left.
    - Action: a question, such as "Is it alive?", "Does it have wheels?", "Is it made of wood or
      metal?" or "Is it a cat?"; or "guess: cat", which ends the game.
    - Reward and info: see `SolitaireEnv`.

    Args:
        questions: number of turns, the guess included.
        split: "train" and "test" have no thing in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    Turns left: 20
    > Is it alive?
    Yes. Turns left: 19
    > Does it have feathers?
    No. Turns left: 18
    > guess: dog                (reward 1)
    ```
    """

    def __init__(
        self, questions: int = 20, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        super().__init__(questions, render_mode, split=split)
        self.prompt = (
            "I think of an everyday thing: an animal, a plant, something to eat, something made by "
            f"people, or a part of nature. Find out which. You have {self.turns} turns. In each "
            "one reply with a short question that can be answered by yes or no, such as 'Is it "
            "made of metal?', or with your guess, such as 'guess: telescope'. A guess ends the "
            "game."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Hide a thing."""
        self._thing = pick(rng, tuple(things()))
        self._answers: tuple[tuple[str, Answer], ...] = ()
        self._guess = ""

    def game(self) -> str:
        """The thing."""
        return self._thing

    def move(self, action: str) -> Outcome:
        """Answer the question, or compare the guess."""
        if (name := guessed(action)) is not None:
            self._guess = one_line(name, LONGEST_QUESTION)
            return "win" if tokens_of(name) == tokens_of(self._thing) else "loss"
        question = one_line(action, LONGEST_QUESTION)
        self._answers = (*self._answers, (question, answer(action, self._thing)))
        return ""

    def view(self) -> str:
        """The last answer and the turns left; the thing at the end."""
        last = f"{SENTENCES[self._answers[-1][1]]} " if self._answers and not self._guess else ""
        return last + self._ending()

    def picture(self) -> str:
        """All questions with their answers."""
        lines = [f"{i}. {question} {reply}" for i, (question, reply) in enumerate(self._answers, 1)]
        return "\n".join([*lines, self._ending()])

    def _ending(self) -> str:
        if self._guess or not self.turns_left:
            return f"It was: {self._thing}"
        return f"Turns left: {self.turns_left}"

    def best_action(self) -> str:
        """The question that best halves the fitting things; a guess if only one fits."""
        # Unclear answers exclude nothing, and without them more histories share a cache entry.
        clear = tuple(pair for pair in self._answers if pair[1] != "I don't know")
        return best_question(clear, is_last=self.turns_left == 1)


@lru_cache(maxsize=2**14)
def best_question(answers: tuple[tuple[str, Answer], ...], *, is_last: bool) -> str:
    """The most informative question after these answers, or a guess.

    answers: pairs of a question and its answer.
    """
    fitting = [n for n in things() if all(answer(question, n) == a for question, a in answers)]
    if len(fitting) == 1 or is_last:
        return f"guess: {fitting[0]}"
    facts = [things()[name] for name in fitting]
    counts = {a.question: sum(name in f for f in facts) for name, a in attributes().items()}
    # A question that half of the things answer with yes has the most information.
    question = min(counts, key=lambda q: abs(2 * counts[q] - len(fitting)))
    is_useful = 0 < counts[question] < len(fitting)
    return question if is_useful else f"Is it a {fitting[0]}?"


def guessed(text: str) -> str | None:
    """The name in "guess: a cat" or "my guess is a cat"; None for a question."""
    match = _GUESS.fullmatch(text.casefold()[: 2 * LONGEST_QUESTION])
    return match["name"].strip() if match else None
