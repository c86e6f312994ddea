r"""The process behind `worker`: a line [answer, truth] in, a line true or false out.

    ["\\frac{1}{2}", "0.5"]     ->  true
    ["x + 1", "x - 1"]          ->  false

math-verify is run with no time limit of its own: it uses SIGALRM, and the parent's deadline kills
the whole process, which also ends a loop in C.
"""

import json
import resource
import sys

from math_verify import parse, verify
from sympy import Expr

MEMORY_BYTES = 4 * 2**30
RELATIVE = 1e-6


def main() -> None:
    """Compare pairs until the input ends, in at most `MEMORY_BYTES` of address space."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin:
        # Both in a box: math-verify parses other texts in part or not at all.
        boxes = [f"\\boxed{{{text}}}" for text in json.loads(line)]
        answer, truth = (parse(box, parsing_timeout=None) for box in boxes)
        same = verify(truth, answer, timeout_seconds=None) and are_close(truth[0], answer[0])
        print(json.dumps(bool(same)), flush=True)


def are_close(a: object, b: object) -> bool:
    """True for two numbers that differ by at most a millionth, and for all other values.

    a, b: parsed by math-verify. The difference is relative to the larger number.
    """
    # math-verify rounds to six places, by which all tiny numbers are equal.
    if not (isinstance(a, Expr) and isinstance(b, Expr) and a.is_number and b.is_number):
        return True
    return bool(abs((a - b).evalf()) <= RELATIVE * max(abs(a.evalf()), abs(b.evalf())))


if __name__ == "__main__":
    main()
