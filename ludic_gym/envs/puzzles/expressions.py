"""Arithmetic expressions: a recursive-descent parser with exact evaluation.

Grammar:

- sum = product {("+" | "-") product}
- product = atom {("*" | "/") atom}
- atom = number | "-" atom | "(" sum ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from operator import add, mul, sub, truediv

LONGEST = 200
# Bounds the depth of the recursion.
MOST_PARENTHESES = 20
_TOKEN = re.compile(r"\s*(?:(\d{1,9})(?!\d)|([-+*/()]))")
_SIGNS = str.maketrans("×·∙÷−–", "***/--")
_OPERATORS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": truediv,
}


class BadExpression(ValueError):
    """The text is not an expression, or divides by zero."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The exact value of an expression, and its numbers from left to right."""

    value: Fraction
    numbers: tuple[int, ...]


def evaluated(text: str) -> Evaluated:
    """The value of an expression of integers, + - * / and parentheses.

    Raises BadExpression for any other text, for division by zero, and for more than 200
    characters or 20 pairs of parentheses.
    """
    tokens = _tokens(text)
    value, rest = _sum(tokens, 0)
    if rest != len(tokens):
        raise BadExpression(f"{tokens[rest]!r} cannot follow token {rest}")
    return Evaluated(value, tuple(int(token) for token in tokens if token.isdigit()))


def _tokens(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise BadExpression(f"{len(text)} characters are more than {LONGEST}")
    text = text.translate(_SIGNS).rstrip()
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or not match[0].isascii():
            raise BadExpression(f"neither a number nor an operator: {text[at:]!r}")
        tokens.append(match[1] or match[2])
        at = match.end()
    if tokens.count("(") > MOST_PARENTHESES:
        raise BadExpression(f"more than {MOST_PARENTHESES} parentheses")
    return tokens


def _sum(tokens: list[str], at: int) -> tuple[Fraction, int]:
    return _chain(tokens, at, "+-", _product)


def _product(tokens: list[str], at: int) -> tuple[Fraction, int]:
    return _chain(tokens, at, "*/", _atom)


def _chain(
    tokens: list[str],
    at: int,
    operators: str,
    operand: Callable[[list[str], int], tuple[Fraction, int]],
) -> tuple[Fraction, int]:
    """Value of operands joined by the operators, from left to right, and the next position."""
    value, at = operand(tokens, at)
    while at < len(tokens) and tokens[at] in operators:
        right, after = operand(tokens, at + 1)
        if tokens[at] == "/" and not right:
            raise BadExpression("division by zero")
        value, at = _OPERATORS[tokens[at]](value, right), after
    return value, at


def _atom(tokens: list[str], at: int) -> tuple[Fraction, int]:
    if at == len(tokens):
        raise BadExpression("the expression is incomplete")
    if tokens[at].isdigit():
        return Fraction(int(tokens[at])), at + 1
    if tokens[at] == "-":
        value, at = _atom(tokens, at + 1)
        return -value, at
    if tokens[at] != "(":
        raise BadExpression(f"no number at {tokens[at]!r}")
    value, at = _sum(tokens, at + 1)
    if at == len(tokens) or tokens[at] != ")":
        raise BadExpression("a parenthesis is not closed")
    return value, at + 1
