"""PythonToolMath: questions about numbers, for policies that run short programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, pick, random_int
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.graders.numeric import grade_number
from ludic_gym.sandbox.types import Sandbox
from ludic_gym.tools.interpreters import python_tool
from ludic_gym.tools.tool import Tool

# A question, and its answer.
Item = tuple[str, int]


class PythonToolMathEnv(QuestionEnv):
    """A question about numbers that is hard by hand and easy with a short program.

    `tools()` returns the tool `python` for a policy with tools; the environment does not use it.

    - Observation: the question.
    - Action: a text with the number, best in <answer></answer> tags.
    - Reward: see `QuestionEnv`.
    - Info: see `QuestionEnv`; "kind" in the first info.

    Args:
        sandbox: sandbox of the tool: "auto", a name, or a Sandbox.
        allow_unsafe: run the tool without protection if no sandbox works.
    """

    prompt = (
        "Answer the question exactly. Use the tools you have. Give the number in tags, such as "
        "<answer>42</answer>."
    )
    grade = grade_number

    def __init__(
        self,
        sandbox: str | Sandbox = "auto",
        allow_unsafe: bool = False,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        super().__init__(render_mode, split=split)
        self._sandbox = sandbox
        self._allow_unsafe = allow_unsafe

    def tools(self) -> tuple[Tool, ...]:
        """The tool `python`. Raises NoSandbox, which names the packages to install."""
        return (python_tool(self._sandbox, allow_unsafe=self._allow_unsafe),)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """Draw a kind and a question of it."""
        self._kind = pick(self.np_random, tuple(KINDS))
        text, value = KINDS[self._kind](self.np_random)
        return Question(text, str(value))

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Ask the question, and name its kind."""
        text, info = super().start(options)
        return text, {**info, "kind": self._kind}


def primes(rng: np.random.Generator) -> Item:
    """A sum of primes."""
    limit = random_int(rng, 500, 5000)
    sieve = np.ones(limit, dtype=bool)
    sieve[:2] = False
    for i in range(2, int(limit**0.5) + 1):
        # From the square on: smaller multiples have a smaller prime factor.
        sieve[i * i :: i] = False
    return f"What is the sum of all prime numbers below {limit}?", int(np.flatnonzero(sieve).sum())


def power(rng: np.random.Generator) -> Item:
    """The sum of the digits of a power."""
    base, exponent = random_int(rng, 3, 99), random_int(rng, 50, 400)
    digits = sum(map(int, str(base**exponent)))
    return f"What is the sum of the decimal digits of {base} to the power of {exponent}?", digits


def recurrence(rng: np.random.Generator) -> Item:
    """A term of a recurrence."""
    a, b, n = random_int(rng, 2, 9), random_int(rng, 2, 9), random_int(rng, 100, 2000)
    modulus = random_int(rng, 1000, 99_999)
    x, y = 1, 1
    for _ in range(n - 2):
        # Modulo in every step, because the terms themselves have hundreds of digits.
        x, y = y, (a * y + b * x) % modulus
    text = (
        f"A sequence begins with 1, 1; every further term is {a} times the one before plus {b} "
        f"times the one before that. What is the remainder of term number {n} (the first is number "
        f"1) divided by {modulus}?"
    )
    return text, y % modulus


def change(rng: np.random.Generator) -> Item:
    """The number of ways to make change."""
    coins = sorted({1 + int(coin) for coin in rng.integers(1, 50, size=5)})
    amount = random_int(rng, 100, 400)
    ways = [1] + [0] * amount
    # Coins in the outer loop: each choice of coins is counted in one order only.
    for coin in coins:
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    listed = ", ".join(map(str, coins))
    text = f"In how many ways can {amount} be paid with coins of {listed}, each as often as needed?"
    return f"{text} The order of the coins does not matter.", ways[amount]


def divisible(rng: np.random.Generator) -> Item:
    """The number of divisible integers in a range."""
    p, q, r = (random_int(rng, 2, 30) for _ in range(3))
    low = random_int(rng, 1, 1000)
    high = low + random_int(rng, 1000, 9000)
    count = sum((n % p == 0 or n % q == 0) and n % r != 0 for n in range(low, high + 1))
    text = f"How many integers from {low} to {high} are divisible by {p} or by {q}, but not by {r}?"
    return text, count


def collatz(rng: np.random.Generator) -> Item:
    """The longest Collatz sequence in a range."""
    low = random_int(rng, 2, 2000)
    high = low + random_int(rng, 50, 300)
    lengths = [collatz_length(n) for n in range(low, high + 1)]
    text = (
        "From n the Collatz sequence goes to n / 2 if n is even, else to 3n + 1, and ends at 1. "
        f"Which number from {low} to {high} has the longest, the smallest of several?"
    )
    # `index` finds the smallest of several, as the question says.
    return text, low + lengths.index(max(lengths))


def collatz_length(n: int) -> int:
    """Number of terms of a Collatz sequence."""
    length = 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        length += 1
    return length


KINDS: Mapping[str, Callable[[np.random.Generator], Item]] = {
    kind.__name__: kind for kind in (primes, power, recurrence, change, divisible, collatz)
}
