"""Arithmetic: generated word problems, from one-digit sums to long chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, floordiv, mod, mul, sub
from typing import Any

from ludic_gym.envs.core.base import checked_choice, checked_range, integer_at, item_at
from ludic_gym.envs.core.levels import SPLITS, Split, in_test
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.errors import ConfigError
from ludic_gym.graders.numeric import grade_number

NAMES = ("Ann", "Bob", "Cy", "Dee")
THINGS = ("pens", "figs", "nuts", "cups")
CLAUSES = {"+": "gets {} more {}", "-": "loses {} {}", "*": "then has {} times as many {}"}
# A random number has 53 bits: enough for 15 digits.
MOST_DIGITS = 15


class ArithmeticEnv(QuestionEnv):
    """A short generated word problem: sums, differences and products.

    - Observation: the problem.
    - Action: a text with the number, best in <answer></answer> tags.
    - Reward and info: see `QuestionEnv`.

    Args:
        digits: number of digits of each operand; a subtrahend has fewer if it had to exceed the
            minuend otherwise.
        operations: the operations that can occur, some of "+-*", uniformly at random.
        steps: number of operations in a row.
        split: "train" and "test" have different pairs of first operands, in either order; one
            pair in five is in "test". "all" has both.
    """

    prompt = "Give the number in tags, such as <answer>7</answer>."
    grade = grade_number

    def __init__(
        self,
        digits: int = 2,
        operations: str = "+",
        steps: int = 1,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        checked_range("digits", digits, 1, MOST_DIGITS)
        if not operations or not set(operations) <= set(CLAUSES):
            raise ConfigError(f'operations is some of "+-*", got {operations!r}')
        self._low, self._high = 10 ** (digits - 1), 10**digits - 1
        self._operations, self._steps = operations, checked_range("steps", steps, 1, 10_000)
        self._split = checked_choice("split", split, SPLITS)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """Draw operands and operations, and tell a story with them."""
        rng = self.np_random
        # All at once: two calls of one number each take as long.
        drawn = rng.random(3 + 2 * self._steps).tolist()
        # Only the first pair decides the split: the others are intermediate results.
        while True:
            total = integer_at(drawn[0], self._low, self._high)
            operation = item_at(drawn[1], self._operations)
            operand = self._operand(drawn[2], operation, total)
            if self._split == "all" or is_held_out(total, operand) == (self._split == "test"):
                break
            drawn = drawn[3:] + rng.random(3).tolist()
        things, *later, name = drawn[3:]
        things, name = item_at(things, THINGS), item_at(name, NAMES)
        clauses = [f"has {total} {_noun(total, things)}"]
        for step in range(self._steps):
            if step:
                operation = item_at(later[2 * step - 2], self._operations)
                operand = self._operand(later[2 * step - 1], operation, total)
            noun = things if operation == "*" else _noun(operand, things)
            clauses.append(CLAUSES[operation].format(operand, noun))
            total = OPERATIONS[operation](total, operand)
        story = ", ".join(clauses[:-1])
        text = f"{name} {story} and {clauses[-1]}. How many {things} does {name} have now?"
        return Question(text, str(total))

    def _operand(self, number: float, operation: str, total: int) -> int:
        """The operand of a random number; it does not make the total negative."""
        if operation == "-":
            return integer_at(number, min(self._low, total), min(self._high, total))
        return integer_at(number, self._low, self._high)


def _noun(count: int, things: str) -> str:
    """The things, in the singular if it is one."""
    return things[:-1] if count == 1 else things


# Operations by their symbols in Python.
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "//": floordiv,
    "%": mod,
}


def is_held_out(a: int, b: int) -> bool:
    """True if the pair, in either order, is in the split "test"; the same in every process."""
    # In either order, because 3 + 5 in training would give away 5 + 3 in the test.
    low, high = sorted((a, b))
    return in_test(f"{low},{high}")
