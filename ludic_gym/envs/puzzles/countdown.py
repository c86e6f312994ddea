"""Countdown: reach a target from given numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, pick
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.envs.puzzles.expressions import BadExpression, worked_out
from ludic_gym.envs.questions.arithmetic import between
from ludic_gym.errors import NoOracle
from ludic_gym.graders.extract import Grade, extract

Term = tuple[int, str]


def grade_countdown(text: str, truth: str) -> Grade:
    """Whether the expression in `text` reaches the target with each number at most once.

    truth: the numbers, then the target: "3 5 25 = 50". A right side that the answer has itself
    ("25 * (5 - 3) = 50") is dropped. The expression is read, never evaluated as code.
    """
    given, _, target = truth.partition(" = ")
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    try:
        worked = worked_out(answer.partition("=")[0])
    except BadExpression:
        return Grade(False, answer, rule)
    allowed = Counter(map(int, given.split())) >= Counter(worked.numbers)
    return Grade(allowed and worked.value == int(target), answer, rule)


class CountdownEnv(QuestionEnv):
    """Write an expression of the given numbers, each at most once, that equals the target.

    numbers: how many are given.
    largest: each is from 1 to largest.

    Observation: the numbers and the target. Action: the expression, with + - * / and parentheses,
    in <answer></answer> tags; other texts are searched for it as any answer is. The truth of the
    last info has numbers and target; there is more than one right answer.

        Numbers: 3 5 25 7
        Target: 50
    <answer>25 * (5 - 3)</answer>             (reward 1)
    """

    prompt = (
        "Write an expression that equals the target. Use each given number at most once, with + - "
        "* / and parentheses. Give the expression in <answer></answer> tags."
    )
    grade = grade_countdown

    def __init__(self, numbers: int = 4, largest: int = 25, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._count = checked_range("numbers", numbers, 2, 8)
        self._largest = checked_range("largest", largest, 2, 100)

    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        self._row(options)
        rng = self.np_random
        numbers = [between(rng, 1, self._largest) for _ in range(self._count)]
        target, self._solution = combined([(n, str(n)) for n in numbers], rng)
        given = " ".join(map(str, numbers))
        question = Question(f"Numbers: {given}\nTarget: {target}", f"{given} = {target}")
        return question, {}

    def oracle_action(self) -> str:
        """The expression that the target was made by. Raises NoOracle when no puzzle is open."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no puzzle is open; call reset() first")
        return f"<answer>{self._solution}</answer>"


def combined(terms: list[Term], rng: np.random.Generator) -> Term:
    """A value that all the terms make, and how: every step gives a positive whole number."""
    while len(terms) > 1:
        i, j = (int(k) for k in rng.permutation(len(terms))[:2])
        joined = pick(rng, joins(terms[i], terms[j]))
        terms = [joined, *(term for k, term in enumerate(terms) if k not in (i, j))]
    return terms[0]


def joins(a: Term, b: Term) -> list[Term]:
    """Every positive whole number that two terms make, the larger one first."""
    (x, left), (y, right) = sorted((a, b), reverse=True)
    found = [(x + y, f"({left} + {right})"), (x * y, f"({left} * {right})")]
    if x > y:
        found.append((x - y, f"({left} - {right})"))
    if x % y == 0:
        found.append((x // y, f"({left} / {right})"))
    return found
