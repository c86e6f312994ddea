"""Countdown: an expression of given numbers that equals a target."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from operator import add, mul, sub, truediv
from typing import Any

import numpy as np

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow
from ludic_gym.data.row import Row, parse_json
from ludic_gym.envs.core.base import checked_range, pick, random_int
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv, rows_if_given
from ludic_gym.errors import DataError, NoOracle
from ludic_gym.graders.extract import Grade, extract

LONGEST = 200
# The given numbers are from 1 to this.
LARGEST = 25
# Expressions have numbers of at most nine digits.
MOST_GIVEN = 10**9
# With more numbers, the search for an expression takes minutes.
MOST_SOLVED = 5
_WHOLE = re.compile(r"-?\d{1,15}")
# Bounds the depth of the recursion.
MOST_PARENTHESES = 20
_TOKEN = re.compile(r"\s*(?:(\d{1,9})(?!\d)|([-+*/()]))")
_SIGNS = str.maketrans("×·∙⋅∗÷∕−–[]", "*****//--()")
# LaTeX's operators, the size of its parentheses, and its marks of mathematics.
_LATEX = re.compile(r"\\(?:(times|cdot|ast)|(div)|left|right)(?![a-zA-Z])|\\[()\[\]]|\$")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
}


class BadExpression(ValueError):
    """The text is not an expression, or divides by zero."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The exact value of an expression, and its numbers from left to right."""

    value: Fraction
    numbers: tuple[int, ...]


def evaluate(text: str) -> Evaluated:
    """The value of an expression of integers, + - * / and parentheses, also in LaTeX.

    Raises BadExpression for any other text, for division by zero, and for more than 200
    characters or 20 pairs of parentheses.
    """
    tokens = _tokens(text)
    try:
        # The spaces keep "//" and "**" apart, which are operators of Python but not of ours.
        tree = ast.parse(" ".join(tokens), mode="eval")
        value = _value(tree.body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise BadExpression(f"{text!r}: {error}") from error
    return Evaluated(value, tuple(int(token) for token in tokens if token.isdigit()))


def _tokens(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise BadExpression(f"{len(text)} characters are more than {LONGEST}")
    if "\\" in text or "$" in text:
        text = _LATEX.sub(lambda m: "*" if m[1] else "/" if m[2] else "", text)
    text = text.translate(_SIGNS).rstrip()
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or not match[0].isascii():
            raise BadExpression(f"neither a number nor an operator: {text[at:]!r}")
        # Python rejects leading zeros.
        tokens.append(str(int(match[1])) if match[1] else match[2])
        at = match.end()
    if tokens.count("(") > MOST_PARENTHESES:
        raise BadExpression(f"more than {MOST_PARENTHESES} parentheses")
    return tokens


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_value(left), _value(right))
    # Python also reads "+1", "()" and "2 (3)".
    raise BadExpression(f"neither a number nor an operation: {ast.unparse(node)!r}")


Term = tuple[int, str]


def grade_countdown(text: str, truth: str) -> Grade:
    """Grade an expression: it must equal the target and use each number at most once.

    truth: the numbers and the target, "3 5 25 = 50".
    A right side in the answer ("25 * (5 - 3) = 50") is ignored. The expression is parsed, never
    evaluated as code.
    """
    numbers, _, target = truth.partition(" = ")
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    try:
        # An operator at an end is no part of an expression, but Markdown: **25 * 2**.
        expression = evaluate(answer.partition("=")[0].strip("`*_ \n").rstrip(".`*_ \n"))
    except BadExpression:
        return Grade(False, answer, rule)
    # As a multiset: a number that is given twice may be used twice.
    allowed = Counter(map(int, numbers.split())) >= Counter(expression.numbers)
    return Grade(allowed and expression.value == int(target), answer, rule)


class CountdownEnv(QuestionEnv):
    """Write an expression of the given numbers, each at most once, that equals the target.

    - Observation: the numbers and the target.
    - Action: an expression with + - * / and parentheses, in <answer></answer> tags.
    - Reward and info: see `QuestionEnv`; "truth" has the numbers and the target, because several
      expressions can be correct.

    Args:
        numbers: number of numbers, 2 to 8, each from 1 to 25.
        split: part of the generated tasks; with `data`, the split of a folder or a data set.
        data: rows in place of generated tasks: a file, a folder with a file per split, or a hub id
            such as "Jiayi-Pan/Countdown-Tasks-3to4".
        fields: columns of "numbers" (2 to 8) and "target" of another layout: see `load_rows`.
        on_bad_row: "skip" leaves out rows that have none.
    """

    prompt = (
        "Write an expression that equals the target. Use each given number at most once, with + - "
        "* / and parentheses. Give the expression in tags, such as <answer>(8 - 2) * 5</answer>."
    )
    grade = grade_countdown

    def __init__(
        self,
        numbers: int = 4,
        render_mode: str | None = None,
        *,
        split: Split = "all",
        data: str | None = None,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
    ) -> None:
        rows = rows_if_given(
            data, task_of, kind="countdown", split=split, fields=fields, on_bad_row=on_bad_row
        )
        super().__init__(render_mode, split=split, rows=rows)
        self._count = checked_range("numbers", numbers, 2, 8)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The task of a row; or draw numbers, and combine all of them into the target."""
        if self.origin is not None:
            self._solution = ""
            return self.row_question(options)
        rng = self.np_random
        numbers = [random_int(rng, 1, LARGEST) for _ in range(self._count)]
        # Computed from the numbers, because a random target may have no solution.
        target, self._solution = combine([(n, str(n)) for n in numbers], rng)
        return _question(numbers, target)

    def task(self, question: Question) -> str:
        """The numbers in any order, and the target."""
        return " ".join(sorted(question.truth.split()))

    def best_action(self) -> str:
        """The expression from which the target was computed, or one that is found.

        Raises NoOracle for a row whose numbers do not reach the target, or are more than five.
        """
        listed, _, target = self.question.truth.partition(" = ")
        terms = [(Fraction(number), number) for number in listed.split()]
        if not self._solution and len(terms) <= MOST_SOLVED:
            self._solution = solved_expression(terms, Fraction(target)) or ""
        if not self._solution:
            raise NoOracle(f"no expression is known for {self.question.truth!r}")
        return f"<answer>{self._solution}</answer>"


def task_of(row: Row) -> Question:
    """The task of a row. Raises DataError without two to eight numbers and a target."""
    numbers, target = row.fields.get("numbers"), row.fields.get("target")
    if isinstance(numbers, str):
        numbers = parse_json(row, "numbers", numbers)
    if isinstance(target, str) and _WHOLE.fullmatch(target):
        target = int(target)
    given = numbers if isinstance(numbers, list) else []
    whole = all(type(number) is int and 0 <= number < MOST_GIVEN for number in given)
    if not whole or not 2 <= len(given) <= 8 or type(target) is not int:
        raise DataError(
            f"{row.where}: 'numbers' must be 2 to 8 whole numbers below {MOST_GIVEN:,}, and "
            f"'target' one, got {numbers!r:.80} and {target!r:.80}"
        )
    return _question(given, target)


def _question(numbers: list[int], target: int) -> Question:
    listed = " ".join(map(str, numbers))
    return Question(f"Numbers: {listed}\nTarget: {target}", f"{listed} = {target}")


def solved_expression(terms: list[tuple[Fraction, str]], target: Fraction) -> str | None:
    """An expression of some of the terms that equals the target; None if there is none."""
    for value, text in terms:
        if value == target:
            return text
    for (i, (x, left)), (j, (y, right)) in permutations(enumerate(terms), 2):
        others = [term for k, term in enumerate(terms) if k not in (i, j)]
        joined = [(x - y, f"({left} - {right})")]
        if y:
            joined.append((x / y, f"({left} / {right})"))
        if i < j:
            joined += [(x + y, f"({left} + {right})"), (x * y, f"({left} * {right})")]
        for term in joined:
            if (found := solved_expression([*others, term], target)) is not None:
                return found
    return None


def combine(terms: list[Term], rng: np.random.Generator) -> Term:
    """A random combination of all terms, whose intermediate values are positive integers."""
    # Every pair has a sum, so that no choice leads to a dead end.
    while len(terms) > 1:
        i, j = (int(k) for k in rng.permutation(len(terms))[:2])
        joined = pick(rng, joins(terms[i], terms[j]))
        terms = [joined, *(term for k, term in enumerate(terms) if k not in (i, j))]
    return terms[0]


def joins(a: Term, b: Term) -> list[Term]:
    """All combinations of two terms with a positive integer as value, the larger term first."""
    # The larger first, so that a difference is positive and a quotient can be whole.
    (x, left), (y, right) = sorted((a, b), reverse=True)
    terms = [(x + y, f"({left} + {right})"), (x * y, f"({left} * {right})")]
    if x > y:
        terms.append((x - y, f"({left} - {right})"))
    if x % y == 0:
        terms.append((x // y, f"({left} / {right})"))
    return terms
