"""Arithmetic: procedural word problems, from one-digit sums to long chains."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import Info, checked_choice, pick
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.errors import ConfigError
from ludic_gym.graders.numeric import grade_number

NAMES = ("Ann", "Bob", "Cy", "Dee")
THINGS = ("pens", "figs", "nuts", "cups")
CLAUSES = {"+": "gets {}", "-": "loses {}", "*": "multiplies them by {}"}
SPLITS = ("all", "train", "test")
# np_random.random() has 53 bits: enough for 15 digits.
MOST_DIGITS = 15
# One pair in five is held out.
HELD_OUT_EVERY = 5


class ArithmeticEnv(QuestionEnv):
    """A short word problem: "Ann has 47 pens and gets 38. How many?".

    digits: how many digits every operand has; a subtrahend has fewer where nothing else is left.
    operations: which of "+", "-" and "*" may occur, each as likely.
    steps: how many operations follow one another.
    split: "train" and "test" ask about different pairs of first operands, whatever their order;
        one pair in five is in "test". "all" asks about any.
    """

    prompt = "Give the number in <answer></answer> tags."
    grade = grade_number

    def __init__(
        self,
        digits: int = 2,
        operations: str = "+",
        steps: int = 1,
        split: Literal["all", "train", "test"] = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if not 1 <= digits <= MOST_DIGITS:
            raise ConfigError(f"digits is from 1 to {MOST_DIGITS}, got {digits!r}")
        if not operations or not set(operations) <= set(CLAUSES):
            raise ConfigError(f'operations is some of "+-*", got {operations!r}')
        if steps < 1:
            raise ConfigError(f"steps is at least 1, got {steps!r}")
        self._low, self._high = 10 ** (digits - 1), 10**digits - 1
        self._operations, self._steps = operations, steps
        self._split = checked_choice("split", split, SPLITS)

    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        self._row(options)
        rng = self.np_random
        start, operation, operand = self._first(rng)
        clauses, total = [f"has {start} {pick(rng, THINGS)}"], start
        for step in range(self._steps):
            if step:
                operation = pick(rng, self._operations)
                operand = self._operand(rng, operation, total)
            clauses.append(CLAUSES[operation].format(operand))
            total = applied(total, operation, operand)
        story = ", ".join(clauses[:-1])
        text = f"{pick(rng, NAMES)} {story} and {clauses[-1]}. How many?"
        return Question(text, str(total)), {}

    def _first(self, rng: np.random.Generator) -> tuple[int, str, int]:
        """A number, an operation and its operand, from the split."""
        while True:
            start = between(rng, self._low, self._high)
            operation = pick(rng, self._operations)
            operand = self._operand(rng, operation, start)
            if self._split == "all" or is_held_out(start, operand) == (self._split == "test"):
                return start, operation, operand

    def _operand(self, rng: np.random.Generator, operation: str, total: int) -> int:
        """A number that leaves no less than nothing."""
        if operation == "-":
            return between(rng, min(self._low, total), min(self._high, total))
        return between(rng, self._low, self._high)


def between(rng: np.random.Generator, low: int, high: int) -> int:
    """Any of low, ..., high, each as likely."""
    return low + int(rng.random() * (high - low + 1))


def applied(total: int, operation: str, operand: int) -> int:
    """The total after the operation."""
    if operation == "*":
        return total * operand
    return total + operand if operation == "+" else total - operand


def is_held_out(a: int, b: int) -> bool:
    """Whether the pair, in either order, belongs to the split "test": always the same."""
    low, high = sorted((a, b))
    return zlib.crc32(f"{low},{high}".encode()) % HELD_OUT_EVERY == 0
