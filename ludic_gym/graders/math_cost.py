"""Cost of a parsed expression: an upper bound of its exact value's size, from its structure.

Nothing is evaluated: 9^(9^9) is measured as quickly as 9.
"""

import math
from dataclasses import dataclass
from functools import reduce
from operator import mul

import sympy
from sympy import Basic, Expr, MatrixBase
from sympy.functions.combinatorial.factorials import CombinatorialFunction

# Evaluation and simplification within these limits take less than a CPU-second.
MOST_BITS = 16_000
MOST_TERMS = 300
MOST_DEGREE = 150
MOST_NODES = 250
MOST_SUMMANDS = 300
MOST_NESTED_ROOTS = 3
MOST_ROOTS = 12
# A result of these is not a final answer, and sympy's algorithms for them are not bounded.
UNBOUNDED = (sympy.Integral, sympy.Limit, sympy.Product)


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds for an expression, each a float that may be infinite.

    magnitude: log2 of the absolute value. bits: size of the exact value. terms: number of terms
    after expansion. degree: of the polynomial. nested: depth of roots within roots.
    """

    magnitude: float = 1.0
    bits: float = 1.0
    terms: float = 1.0
    degree: float = 0.0
    nested: int = 0


TOO_LARGE = Size(math.inf, math.inf, math.inf, math.inf)


def is_expensive(value: Basic | MatrixBase) -> bool:
    """True for a value that could take long to evaluate or to simplify.

    >>> [is_expensive(sympy.S(text, evaluate=False)) for text in ("2**99", "9**9**9", "x**3 + 1")]
    [False, True, False]
    """
    nodes = list(sympy.preorder_traversal(value))
    if len(nodes) > MOST_NODES or sum(map(is_root, nodes)) > MOST_ROOTS:
        return True
    size = size_of(value)
    # Not >, because a bound may be nan.
    return not (
        size.bits <= MOST_BITS
        and size.terms <= MOST_TERMS
        and size.degree <= MOST_DEGREE
        and size.nested <= MOST_NESTED_ROOTS
    )


def is_root(value: object) -> bool:
    """True for a power with a fraction as its exponent."""
    return isinstance(value, sympy.Pow) and value.exp.is_Rational and not value.exp.is_Integer


def size_of(value: Basic | MatrixBase) -> Size:
    """Bounds for the value, by recursion over its parts."""
    if isinstance(value, sympy.Rational):
        bits = value.p.bit_length() + value.q.bit_length()
        return Size(_log2(value.p) - _log2(value.q), bits)
    if isinstance(value, sympy.Float):
        return _of_float(value)
    if isinstance(value, sympy.Symbol):
        return Size(degree=1.0)
    if isinstance(value, UNBOUNDED):
        return TOO_LARGE
    parts = [size_of(part) for part in value.args]
    if not parts:
        return Size(2.0)
    if isinstance(value, sympy.Pow | sympy.MatPow):
        return _of_power(value, *parts)
    if isinstance(value, sympy.exp):
        # e has fewer than 2 bits.
        return _of_power(sympy.Pow(sympy.E, value.args[0], evaluate=False), Size(2.0), parts[0])
    if isinstance(value, CombinatorialFunction | sympy.gamma):
        return _of_factorial(parts)
    if isinstance(value, sympy.Sum):
        return _of_sum(parts, value)
    if isinstance(value, sympy.Mul | sympy.MatMul):
        return _of_product(parts)
    return _of_all(parts)


def _log2(number: int) -> float:
    return math.log2(abs(number)) if number else 0.0


def _of_float(value: sympy.Float) -> Size:
    # mpmath's (sign, mantissa, exponent, bits of the mantissa).
    _, _, exponent, bits = value._mpf_
    return Size(exponent + bits, abs(exponent) + bits)


def _of_power(value: Expr, base: Size, exponent: Size) -> Size:
    nested = base.nested + 1 if is_root(value) else max(base.nested, exponent.nested)
    if value.args[1].free_symbols:
        # No number: a product of powers, which does not grow by its evaluation.
        return Size(math.inf, base.bits + exponent.bits, base.terms * exponent.terms, 1.0, nested)
    times = 2 ** min(exponent.magnitude, 64.0)
    terms = base.terms
    if base.terms > 1 and not is_root(value):
        # Multinomial: the number of products of `times` of the terms.
        terms = (
            math.comb(int(times + base.terms), int(base.terms)) if times < MOST_BITS else math.inf
        )
    bits = max(times, 1.0) * base.bits + exponent.bits
    return Size(times * abs(base.magnitude), bits, terms, times * base.degree, nested)


def _of_factorial(parts: list[Size]) -> Size:
    largest = 2 ** min(max(part.magnitude for part in parts), 64.0)
    bits = largest * max(1.0, math.log2(largest)) if largest else 1.0
    return Size(bits, bits, nested=max(part.nested for part in parts))


def _of_sum(parts: list[Size], value: sympy.Sum) -> Size:
    whole = _of_all(parts)
    low, high = value.limits[0][1:] if len(value.limits[0]) == 3 else (0, sympy.oo)
    count = sympy.S(high) - sympy.S(low)
    # A sum without numbers as its bounds stays a sum.
    if (count.is_Integer and count > MOST_SUMMANDS) or count.is_infinite:
        return TOO_LARGE
    return whole


def _of_product(parts: list[Size]) -> Size:
    return Size(
        sum(part.magnitude for part in parts),
        sum(part.bits for part in parts),
        reduce(mul, (part.terms for part in parts)),
        sum(part.degree for part in parts),
        max(part.nested for part in parts),
    )


def _of_all(parts: list[Size]) -> Size:
    """Bounds for a sum, a function of the parts, or a collection of them."""
    return Size(
        max(part.magnitude for part in parts) + _log2(len(parts)),
        sum(part.bits for part in parts),
        sum(part.terms for part in parts),
        max(part.degree for part in parts),
        max(part.nested for part in parts),
    )
