"""The register of planted faults, and what many of them use."""

import re
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from ludic_gym.envs.core.base import end
from ludic_gym.envs.games.grids import MazeEnv
from ludic_gym.envs.games.guessing import GuessTheNumberEnv
from ludic_gym.envs.games.tic_tac_toe import TicTacToeEnv
from ludic_gym.envs.games.words import WordleEnv
from ludic_gym.envs.questions.arithmetic import ArithmeticEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv

BASES = {
    ArithmeticEnv: "ludic/Arithmetic-v0",
    GuessTheNumberEnv: "ludic/GuessTheNumber-v0",
    MazeEnv: "ludic/Maze-v0",
    MultipleChoiceEnv: "ludic/MultipleChoice-v0",
    TicTacToeEnv: "ludic/TicTacToe-v0",
    ShortAnswerEnv: "ludic/ShortAnswer-v0",
    WordleEnv: "ludic/Wordle-v0",
}


@dataclass(frozen=True)
class Mutant:
    """An environment with a fault. base: the id without it. stated: fields of its Statement."""

    entry: type
    base: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)


MUTANTS: dict[str, Mutant] = {}


def planted(entry=None, /, **stated):
    """Decorator that puts the class into `MUTANTS`."""

    def put(cls):
        base = next(BASES[parent] for parent in cls.__mro__ if parent in BASES)
        MUTANTS[f"mutant/{cls.__name__}-v0"] = Mutant(cls, base, stated=stated)
        return cls

    return put if entry is None else put(entry)


SOUND: dict[str, Mutant] = {
    f"mutant/Sound{cls.__name__}-v0": Mutant(cls, base) for cls, base in BASES.items()
}
"""The environments without a fault, for which an audit has nothing to find."""


def register():
    """Put all mutants, and the environments without a fault, into Gymnasium's registry."""
    for name, mutant in {**MUTANTS, **SOUND}.items():
        if name not in gym.registry:
            gym.register(name, mutant.entry, order_enforce=False, disable_env_checker=True)


def number_in(text):
    """The last number of a text, or ""."""
    return (re.findall(r"-?\d+", text) or [""])[-1]


def paid(env, won, **info):
    """The end of an episode of a question."""
    return end(success=bool(won), correct=float(won), info={"truth": env.question.truth, **info})


def graded_by(rule):
    """A `turn` that pays where the rule (of action and truth) is true."""
    return lambda self, action: paid(self, rule(action, self.question.truth))
