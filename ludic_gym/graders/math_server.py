r"""The process behind `maths`: a line [answer, truth] in, a line with the verdict out.

    ["\\frac{1}{2}", "0.5"]     ->  "equal"
    ["x + 1", "x - 1"]          ->  "different"
    ["9^{9^9}", "1"]            ->  "refused"

The kernel ends the process at its limit of CPU time, also in a loop in C. A busy machine does not
use up that time, so that it changes no verdict. An expression is refused by an upper bound of its
exact value's size, from its structure: 9^(9^9) is measured as quickly as 9.
"""

import json
import math
import resource
import signal
import sys
from dataclasses import dataclass
from functools import partial, reduce
from operator import mul
from types import ModuleType
from typing import TypeAlias

import sympy
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, parse, verify
from sympy import And, Basic, Eq, Expr, MatrixBase, MatrixExpr
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
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
MEMORY_BYTES = 4 * 2**30
RELATIVE = 1e-6
# Only LaTeX: the other configurations take the last number of a text that they cannot parse.
LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
# Different values for the symbols, in their order: where two expressions differ, they differ here.
PROBES = [sympy.Rational(n, 97) for n in (31, 59, 83, 23, 71, 41, 13, 89)]
Value: TypeAlias = Basic | MatrixBase


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
        # mpmath's (sign, mantissa, exponent, bits of the mantissa).
        _, _, exponent, bits = value._mpf_
        return Size(exponent + bits, abs(exponent) + bits)
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
        largest = 2 ** min(max(part.magnitude for part in parts), 64.0)
        bits = largest * max(1.0, math.log2(largest)) if largest else 1.0
        return Size(bits, bits, nested=max(part.nested for part in parts))
    if isinstance(value, sympy.Sum):
        low, high = value.limits[0][1:] if len(value.limits[0]) == 3 else (0, sympy.oo)
        count = sympy.S(high) - sympy.S(low)
        # A sum without numbers as its bounds stays a sum.
        if (count.is_Integer and count > MOST_SUMMANDS) or count.is_infinite:
            return TOO_LARGE
    if isinstance(value, sympy.Mul | sympy.MatMul):
        return Size(
            sum(part.magnitude for part in parts),
            sum(part.bits for part in parts),
            reduce(mul, (part.terms for part in parts)),
            sum(part.degree for part in parts),
            max(part.nested for part in parts),
        )
    return _of_all(parts)


def _log2(number: int) -> float:
    return math.log2(abs(number)) if number else 0.0


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


def _of_all(parts: list[Size]) -> Size:
    """Bounds for a sum, a function of the parts, or a collection of them."""
    return Size(
        max(part.magnitude for part in parts) + _log2(len(parts)),
        sum(part.bits for part in parts),
        sum(part.terms for part in parts),
        max(part.degree for part in parts),
        max(part.nested for part in parts),
    )


class TooExpensive(Exception):
    """The parsed value could take too long to evaluate."""


def main(cpu_s: float) -> None:
    """Compare pairs until the input ends.

    cpu_s: CPU time for each, after which the process dies of SIGPROF.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    latex2sympy2.sympy = bounded_sympy()
    for line in sys.stdin:
        answer, truth = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        verdict = verdict_on(answer, truth)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(verdict, flush=True)


def bounded_sympy() -> ModuleType:
    """The module sympy for the parser, without what it would evaluate to any size."""
    bounded = ModuleType("sympy")
    vars(bounded).update(vars(sympy))
    for name in ("eye", "zeros", "ones", "nsimplify"):
        delattr(bounded, name)
    vars(bounded)["binomial"] = partial(sympy.binomial, evaluate=False)
    vars(bounded)["gamma"] = partial(sympy.gamma, evaluate=False)
    return bounded


def verdict_on(answer: str, truth: str) -> str:
    """The verdict: "equal", "different", or "refused" for an answer that is too expensive."""
    try:
        return "equal" if is_same(answer, truth) else "different"
    except TooExpensive:
        return "refused"
    except MemoryError:
        raise
    except Exception:
        # sympy raises any class for expressions that have no value, such as a sum of sets.
        return "refused"


def is_same(answer: str, truth: str) -> bool:
    """True if both have one value. Raises TooExpensive, or any error of sympy."""
    left, right = parsed(answer), parsed(truth)
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    left, right = as_set(left, right), as_set(right, left)
    # The parser takes i for a name, and that of 2i for another one than that of 2 \cdot i.
    names = {s for s in left.free_symbols | right.free_symbols if s.name == "i"}
    if len(names) > 1 or any(value.has(sympy.I, sympy.exp) for value in (left, right)):
        for symbol in names:
            left, right = left.subs(symbol, sympy.I), right.subs(symbol, sympy.I)
    if has_relation(right):
        return equal(left, right)
    return all(equal(side, right) for side in sides(left))


def as_set(value: Value, other: Value) -> Value:
    """The numbers that inequalities of one symbol hold for, if the other value is a set of numbers.

    Several relations are alternatives, as math-verify reads "x < 1 or x > 2".
    """
    if not isinstance(other, sympy.Interval | sympy.Union) or len(value.free_symbols) != 1:
        return value
    relations = value.atoms(Relational)
    # sympy's solution of others has no bound of time.
    is_simple = all(s.is_Symbol or s.is_number for relation in relations for s in relation.args)
    if not relations or not is_simple or value.atoms(Eq):
        return value
    alternatives = value.args if isinstance(value, sympy.FiniteSet) else (value,)
    return sympy.Union(*(relation.as_set() for relation in alternatives))


def parsed(text: str) -> Value | str:
    """The value of the text, or the text itself where it is not mathematics."""
    # In a box: math-verify parses other texts in part or not at all. "first_match": it would take
    # a fraction or a formula inside a box that it cannot parse for the answer.
    values = parse(f"\\boxed{{{text}}}", LATEX, extraction_mode="first_match", parsing_timeout=None)
    value = values[0] if values else text
    if isinstance(value, MatrixBase):
        # Only the immutable one is a Basic, with parts to measure.
        value = value.as_immutable()
    if isinstance(value, str):
        return text
    if is_expensive(value):
        raise TooExpensive(text)
    return value


def has_relation(value: Value) -> bool:
    """True for an equation or an inequality, also in a set."""
    return isinstance(value, Relational | And) or any(
        isinstance(part, Relational) for part in value.args
    )


def sides(value: Value) -> list[Value]:
    """The sides that an equation, or a chain of them, claims to be the value.

    Its first or last side may be a name, such as x, f(x), |AB| or (x, y); no other expression with
    symbols, because x + 1 = 3 does not mean 3.
    """
    equations = value._unsorted_args if hasattr(value, "_unsorted_args") else value.args
    if isinstance(value, Eq):
        equations = [value]
    elif not (isinstance(value, And) and all(isinstance(part, Eq) for part in equations)):
        return [value]
    first, rest = equations[0].lhs, [equation.rhs for equation in equations]
    if is_name(first):
        return rest
    return [first, *rest[:-1]] if is_name(rest[-1]) else [first, *rest]


def is_name(value: Value) -> bool:
    """True for symbols, and functions, products and tuples of symbols alone."""
    if isinstance(value, sympy.Symbol | AppliedUndef):
        return True
    if not isinstance(value, sympy.Mul | sympy.Tuple | sympy.Abs | sympy.Interval):
        return False
    parts = [part for part in value.args if not isinstance(part, sympy.logic.boolalg.BooleanAtom)]
    return bool(parts) and all(part == sympy.E or is_name(part) for part in parts)


def equal(left: Value, right: Value) -> bool:
    """True if math-verify finds both equal, and their numbers are close."""
    # First, because it costs little, and simplification of a difference that is not 0 costs much.
    pair = (left, right)
    if all(isinstance(v, Expr) and not isinstance(v, MatrixExpr) for v in pair) and not are_close(
        *pair
    ):
        return False
    return bool(verify([right], [left], timeout_seconds=None))


def are_close(a: Expr, b: Expr) -> bool:
    """True unless the values differ by more than a millionth of the larger one.

    Symbols have fixed values. True also where these give no numbers.
    """
    # math-verify rounds to six places, by which all tiny numbers are equal.
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    values = dict(zip(symbols, PROBES, strict=False))
    if any(part.has(sympy.Sum, sympy.Derivative, AppliedUndef) for part in (a, b)):
        return True
    x, y = (sympy.N(part.doit().subs(values), 30) for part in (a, b))
    if not (x.is_number and y.is_number and x.is_finite and y.is_finite):
        return True
    return bool(abs(x - y) <= RELATIVE * max(abs(x), abs(y)))


if __name__ == "__main__":
    main(float(sys.argv[1]))
