"""Arithmetic expressions: numbers, + - * / and parentheses, with exact evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import add, mul, sub, truediv

LONGEST = 200
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


def evaluated(text: str) -> Evaluated:
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
