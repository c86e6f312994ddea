r"""The process behind `worker`: a line [answer, truth] in, a line with the verdict out.

    ["\\frac{1}{2}", "0.5"]     ->  "equal"
    ["x + 1", "x - 1"]          ->  "different"
    ["9^{9^9}", "1"]            ->  "refused"

The kernel ends the process at its limit of CPU time, also in a loop in C. A busy machine does not
use up that time, so that it changes no verdict.
"""

import json
import resource
import signal
import sys
from functools import partial
from types import ModuleType
from typing import TypeAlias

import sympy
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, parse, verify
from sympy import And, Basic, Eq, Expr, MatrixBase, MatrixExpr
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from ludic_gym.graders.math_cost import is_expensive

MEMORY_BYTES = 4 * 2**30
RELATIVE = 1e-6
# Only LaTeX: the other configurations take the last number of a text that they cannot parse.
LATEX = (LatexExtractionConfig(boxed_match_priority=0),)
# Different values for the symbols, in their order: where two expressions differ, they differ here.
PROBES = [sympy.Rational(n, 97) for n in (31, 59, 83, 23, 71, 41, 13, 89)]

Value: TypeAlias = Basic | MatrixBase


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
        verdict = compared(answer, truth)
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


def compared(answer: str, truth: str) -> str:
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
    given, right = parsed(answer), parsed(truth)
    if isinstance(given, str) or isinstance(right, str):
        return given == right
    if has_relation(right):
        return equal(given, right)
    return all(equal(side, right) for side in sides(given))


def parsed(text: str) -> Value | str:
    """The value of the text, or the text itself where it is not mathematics."""
    # In a box: math-verify parses other texts in part or not at all. "first_match": it would take
    # a fraction or a formula inside a box that it cannot parse for the answer.
    found = parse(f"\\boxed{{{text}}}", LATEX, extraction_mode="first_match", parsing_timeout=None)
    value = found[0] if found else text
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

    Its first side may be a name, such as x, f(x), |AB| or (x, y); no other expression with
    symbols, because x + 1 = 3 does not mean 3.
    """
    equations = value._unsorted_args if hasattr(value, "_unsorted_args") else value.args
    if isinstance(value, Eq):
        equations = [value]
    elif not (isinstance(value, And) and all(isinstance(part, Eq) for part in equations)):
        return [value]
    first, rest = equations[0].lhs, [equation.rhs for equation in equations]
    return rest if is_name(first) else [first, *rest]


def is_name(value: Value) -> bool:
    """True for symbols, and functions, products and tuples of symbols alone."""
    if isinstance(value, sympy.Symbol | AppliedUndef):
        return True
    if not isinstance(value, sympy.Mul | sympy.Tuple | sympy.Abs | sympy.Interval):
        return False
    parts = [part for part in value.args if not isinstance(part, sympy.logic.boolalg.BooleanAtom)]
    return bool(parts) and all(part == sympy.E or is_name(part) for part in parts)


def equal(given: Value, right: Value) -> bool:
    """True if math-verify finds both equal, and their numbers are close."""
    # First, because it costs little, and simplification of a difference that is not 0 costs much.
    pair = (given, right)
    if all(isinstance(v, Expr) and not isinstance(v, MatrixExpr) for v in pair) and not are_close(
        *pair
    ):
        return False
    return bool(verify([right], [given], timeout_seconds=None))


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
