"""Faults of seeds, and of state that outlives an episode or cannot be copied."""

import os
import random
import time
from typing import ClassVar

import numpy as np

from ludic_gym.envs.core.question import Question
from ludic_gym.envs.games.guessing import GuessTheNumberEnv
from ludic_gym.envs.games.words import WordleEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from mutants.planted import planted


@planted
class SeedDropped(ArithmeticEnv):
    """`reset` accepts a seed and does not use it."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None, options=options)


@planted
class SeedFixed(ArithmeticEnv):
    """Every seed is taken for 7."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else 7, options=options)


@planted
class SeedCoarse(ArithmeticEnv):
    """A thousand seeds are one."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed if seed is None else seed // 1000, options=options)


@planted
class SeedOnlyOnce(ArithmeticEnv):
    """Only the first seed counts."""

    def reset(self, *, seed=None, options=None):
        seed = None if hasattr(self, "seeded") else seed
        self.seeded = True
        return super().reset(seed=seed, options=options)


@planted
class ResetRepeats(ArithmeticEnv):
    """A reset without a seed starts at seed 0 again."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed or 0, options=options)


@planted
class GlobalRandom(ArithmeticEnv):
    """Draws from the module `random`."""

    def ask(self, options):
        a, b = random.randint(10, 99), random.randint(10, 99)
        return Question(f"{a} + {b}?", str(a + b))


@planted
class GlobalNumpy(ArithmeticEnv):
    """Draws from NumPy's global generator."""

    def ask(self, options):
        a = int(np.random.randint(10, 99))
        return Question(f"{a} + 1?", str(a + 1))


@planted
class ClockSeed(ArithmeticEnv):
    """Draws from a generator that the clock seeds."""

    def ask(self, options):
        a = random.Random(time.time_ns()).randint(10, 10_000)
        return Question(f"{a} + 1?", str(a + 1))


@planted
class ProcessSeed(ArithmeticEnv):
    """The process number is a part of the task."""

    def ask(self, options):
        a = int(self.np_random.integers(10, 99)) + os.getpid()
        return Question(f"{a} + 1?", str(a + 1))


@planted
class HashOfText(ArithmeticEnv):
    """Python's hash of a text decides the task."""

    def ask(self, options):
        a = hash(super().ask(options).text) % 1000
        return Question(f"{a} + 1?", str(a + 1))


@planted
class SetOrder(ArithmeticEnv):
    """Draws from a set, whose order differs from process to process."""

    def ask(self, options):
        name = list({"Ann", "Bob", "Cy", "Dee", "Eve", "Flo"})[int(self.np_random.integers(6))]
        found = super().ask(options)
        return Question(f"{name}: {found.text}", found.truth)


@planted
class AddressOrder(ArithmeticEnv):
    """The address of an object is a part of the task."""

    def ask(self, options):
        found = super().ask(options)
        return Question(f"{found.text} ({id(self)})", found.truth)


@planted
class SharedCounter(ArithmeticEnv):
    """All environments count their tasks together."""

    count: ClassVar[list[int]] = [0]

    def ask(self, options):
        self.count[0] += 1
        return Question(f"{self.count[0]} + 1?", str(self.count[0] + 1))


@planted
class SharedDeck(MultipleChoiceEnv):
    """Rows are taken from a deck of the class, so that none is repeated."""

    deck: ClassVar[list[int]] = []

    def ask(self, options):
        if not self.deck:
            self.deck.extend(range(self.num_rows))
        row = self.deck.pop(int(self.np_random.integers(len(self.deck))))
        return super().ask({**options, "row": options.get("row", row)})


@planted
class SharedQuestion(ArithmeticEnv):
    """The question of the present episode is kept on the class."""

    def start(self, options):
        first = super().start(options)
        type(self).question = self.__dict__.pop("question")
        return first


@planted
class KeptMarks(WordleEnv):
    """The marks of the last episode stay."""

    def deal(self, rng):
        kept = getattr(self, "_marks", {})
        super().deal(rng)
        self._marks = kept


@planted
class KeptTurns(GuessTheNumberEnv):
    """The turns of the last episode are not given back."""

    def start(self, options):
        left = self.turns_left
        first = super().start(options)
        self.turns_left = left or self.turns
        return first


@planted
class LocalState(ArithmeticEnv):
    """Holds a function that cannot be pickled."""

    def start(self, options):
        self.hook = lambda: None
        return super().start(options)


@planted
class GeneratorState(GuessTheNumberEnv):
    """Holds a generator, which cannot be copied."""

    def deal(self, rng):
        super().deal(rng)
        self.hints = (str(i) for i in range(9))


@planted
class CopySharesGuesses(GuessTheNumberEnv):
    """A copy shares the list of guesses with the original."""

    def deal(self, rng):
        super().deal(rng)
        self.guesses = []

    def move(self, action):
        self.guesses.append(action)
        return super().move(action)

    def view(self):
        return f"Guesses so far: {len(self.guesses)}. {super().view()}"

    def __deepcopy__(self, memo):
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin
