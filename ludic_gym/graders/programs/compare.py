"""Comparison of results and rows with the expected ones: outside the sandbox, on plain data.

Nothing here builds objects from a program's results: a set of chosen numbers would take quadratic
time, and an object of the program's own class could be equal to everything.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from ludic_gym.graders.programs.plain import Tree
from ludic_gym.graders.programs.types import Comparator, Compared

RELATIVE = 1e-7
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,4})?")
_SEQUENCES = ("tuple", "range", "complex", "bytes", "bytearray")
_SETS = ("set", "frozenset")
# Assignments of columns that are tried; an honest table needs one per column or two.
MOST_TRIALS = 300
Table = list[tuple[str, ...]]


def is_same(got: Tree, expected: Tree, *, atol: float, compared: Compared = "value") -> bool:
    """True if two values are equal in Python, floats within `atol` or a ten-millionth.

    got, expected: trees; see `plain`. A value that is nested too deeply or is no tree is different.
    compared: "value", "unordered" (as sets of their members), "truth" (both true or both false), or
        "wrapped" (the value, or the only member of an expected list).

    >>> is_same([1, 2.0000001], [1.0, 2], atol=1e-6), is_same({"tuple": [1]}, [1], atol=1e-6)
    (True, False)
    >>> is_same([2, 1, 1], [1, 2], atol=0, compared="unordered")
    True
    """
    try:
        if compared == "unordered":
            return _members(got) == _members(expected)
        if compared == "truth":
            return bool(kind_and_content(got)[1]) == bool(kind_and_content(expected)[1])
        if compared == "wrapped" and isinstance(expected, list) and len(expected) == 1:
            # APPS takes the first member of a longer list too, which a wrong program could return.
            return _same(got, expected, atol) or _same(got, expected[0], atol)
        return _same(got, expected, atol)
    # A result that is nested too deeply, or is no tree at all, is not the expected one.
    except (RecursionError, ValueError, TypeError, OverflowError):
        return False


def is_same_text(got: str, expected: str, comparator: Comparator, tolerance: float) -> bool:
    r"""True if a program's output matches the expected one, by that comparator.

    comparator: see StdinTests. tolerance: for numbers, absolute or relative; unused by the others.

    >>> is_same_text("1\n2\n", "1 2", "words", 0), is_same_text("1\n2\n", "1 2", "exact", 0)
    (True, False)
    >>> is_same_text("x 0.333333", "x 0.3333333", "numbers", 1e-6)
    True
    """
    if comparator == "exact":
        return _lines(got) == _lines(expected)
    if comparator == "lines":
        pairs = expected.strip().split("\n"), got.strip().split("\n")
        # The same lines, or lines of equal numbers.
        return len(pairs[0]) == len(pairs[1]) and all(
            a.strip() == b.strip() or (_numbers(a) != [] and _numbers(a) == _numbers(b))
            for a, b in zip(*pairs, strict=True)
        )
    ours, theirs = expected.split(), got.split()
    if comparator == "words" or ours == theirs:
        return ours == theirs
    return len(ours) == len(theirs) and all(
        a == b or _close_numbers(a, b, tolerance) for a, b in zip(theirs, ours, strict=True)
    )


def _lines(text: str) -> str:
    """The output with Unix line breaks, and none at its end."""
    return text.replace("\r\n", "\n").rstrip("\n")


def _numbers(line: str) -> list[Decimal]:
    """The numbers of a line; [] if it has other words."""
    words = line.split()
    return [Decimal(word) for word in words] if all(map(_NUMBER.fullmatch, words)) else []


def _close_numbers(a: str, b: str, tolerance: float) -> bool:
    """True if both texts are decimal numbers that differ by at most the tolerance."""
    # Not every text that `float` takes: it takes "nan", "infinity" and "1_0" too.
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)):
        return False
    x, y = float(a), float(b)
    # Beyond a float's range all are infinite, and would be equal.
    if math.isinf(x) or math.isinf(y):
        return Decimal(a) == Decimal(b)
    return math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance)


def _same(got: Tree, expected: Tree, atol: float) -> bool:
    """True for equal trees; raises ValueError or TypeError for what is none."""
    kind, content = kind_and_content(expected)
    its_kind, its_content = kind_and_content(got)
    # Members are compared as sorted texts: a program could choose numbers of equal hash, with which
    # a set takes quadratic time. In Python a set equals a frozenset of the same members.
    if kind in _SETS and its_kind in _SETS:
        return sorted(map(key_of_tree, its_content)) == sorted(map(key_of_tree, content))
    if kind != its_kind:
        return False
    if kind == "number":
        return _same_number(its_content, content, atol)
    if kind == "dict":
        return _same_dict(its_content, content, atol)
    if kind == "list" or kind in _SEQUENCES:
        return len(its_content) == len(content) and all(
            a == b if isinstance(a, str) else _same(a, b, atol)
            for a, b in zip(its_content, content, strict=True)
        )
    return bool(its_content == content)


def _same_number(got: float, expected: float, atol: float) -> bool:
    """True for equal numbers: exact if both are int, else within the tolerances; nan equals nan."""
    if got == expected:
        return True
    # Integers are exact: a tolerance would accept another large number.
    if isinstance(got, int) and isinstance(expected, int):
        return False
    if math.isnan(got) or math.isnan(expected):
        return math.isnan(got) and math.isnan(expected)
    # The difference of infinities is nan or infinite, and so never small enough.
    return abs(got - expected) <= atol + RELATIVE * abs(expected) < math.inf


def _same_dict(got: list[Any], expected: list[Any], atol: float) -> bool:
    """True for equal keys, in any order, with equal values. got, expected: lists of pairs."""
    values = {key_of_tree(key): value for key, value in got}
    return len(got) == len(expected) and all(
        key_of_tree(key) in values and _same(values[key_of_tree(key)], value, atol)
        for key, value in expected
    )


def kind_and_content(tree: Tree) -> tuple[str, Any]:
    """The kind of a tree ("number", "text", "list", "tuple" ...) and its content."""
    if isinstance(tree, bool | int | float):
        return "number", tree
    if isinstance(tree, list):
        return "list", tree
    if not isinstance(tree, dict):
        return "text", tree
    ((kind, content),) = tree.items()
    if kind == "int":
        return "number", int(content, 16)
    if not isinstance(content, list | str):
        raise ValueError(f"{kind} of {content!r}")
    return kind, content


def _members(tree: Tree) -> set[str]:
    """The different members of a list, tuple or set, as texts; else raise ValueError."""
    kind, content = kind_and_content(tree)
    if kind not in ("list", "tuple", *_SETS):
        raise ValueError(f"{kind} has no members")
    return set(map(key_of_tree, content))


def key_of_tree(tree: Tree) -> str:
    """A text that is equal for two trees if Python treats them as the same member of a set."""
    kind, content = kind_and_content(tree)
    if kind == "number":
        # 1, 1.0 and True are one member of a set.
        whole = not isinstance(content, float) or content.is_integer()
        return hex(int(content)) if whole else repr(content)
    if kind == "dict":
        return f"dict{sorted((key_of_tree(k), key_of_tree(v)) for k, v in content)}"
    if kind in _SETS:
        return f"set{sorted(map(key_of_tree, content))}"
    if isinstance(content, list):
        return f"{kind}{[key_of_tree(part) for part in content]}"
    return f"{kind}{json.dumps(content)}"


def is_same_table(got: Tree, expected: Sequence[Tree], *, ordered: bool) -> bool:
    """True if a query's rows are the expected ones; numbers are compared to nine digits.

    got, expected: trees of rows, each a tuple. ordered: False for a query without ORDER BY, where
    rows may come in any order, but equally often.

    >>> rows = [{"tuple": ["Ada", 1.0]}, {"tuple": ["Bob", None]}]
    >>> is_same_table(rows[::-1], rows, ordered=False), is_same_table(rows[:1], rows, ordered=False)
    (True, False)
    """
    return _compared(
        got, expected, lambda a, b: a == b if ordered else sorted(a) == sorted(b), digits=9
    )


def is_same_set(got: Tree, expected: Sequence[Tree]) -> bool:
    """True if a query's rows are the expected ones as a set: the rule of BIRD (arXiv:2305.03111).

    >>> one, two = {"tuple": [1]}, {"tuple": [2]}
    >>> is_same_set([two, one, two], [one, two])
    True
    """
    return _compared(got, expected, lambda a, b: set(a) == set(b))


def is_same_by_columns(got: Tree, expected: Sequence[Tree], *, ordered: bool) -> bool:
    """True if a query's rows are the expected ones with the columns in some order.

    The rule of Spider (Zhong et al. 2020, arXiv:2010.02840). ordered: True if the order of rows
    counts.

    >>> is_same_by_columns([{"tuple": [1, "a"]}], [{"tuple": ["a", 1]}], ordered=True)
    True
    """
    return _compared(got, expected, lambda a, b: _columns_match(a, b, ordered))


def _compared(
    got: Tree,
    expected: Sequence[Tree],
    same: Callable[[Table, Table], bool],
    digits: int | None = None,
) -> bool:
    """The verdict of `same` on the keys of both tables; False for what is no table."""
    try:
        ours = [_keys(row, digits) for row in expected]
        theirs = [_keys(row, digits) for row in got]
        return same(theirs, ours)
    except (RecursionError, ValueError, TypeError, OverflowError):
        return False


def _keys(row: Tree, digits: int | None) -> tuple[str, ...]:
    """A text for each cell, equal for equal cells. digits: of numbers that count; None for all."""
    _, cells = kind_and_content(row)
    return tuple(
        key_of_tree(float(f"{c:.{digits}g}") if digits and isinstance(c, float) else c)
        for c in cells
    )


def _columns_match(got: Table, expected: Table, ordered: bool) -> bool:
    """True if an order of the columns makes the tables equal."""
    if not got and not expected:
        return True
    if len(got) != len(expected) or {len(row) for row in got} != {len(row) for row in expected}:
        return False
    ours, theirs = list(zip(*expected, strict=True)), list(zip(*got, strict=True))
    if ordered:
        return sorted(ours) == sorted(theirs)
    trials = [0]

    def assigned(chosen: tuple[int, ...]) -> bool:
        """True if the first columns of the expected table can be the chosen ones, and so on."""
        # Rows of the first columns alone must agree, which leaves few choices for the next one.
        trials[0] += 1
        here = [theirs[i] for i in chosen]
        if trials[0] > MOST_TRIALS or Counter(zip(*here, strict=True)) != Counter(
            zip(*ours[: len(chosen)], strict=True)
        ):
            return False
        if len(chosen) == len(ours):
            return True
        rest = (i for i in range(len(theirs)) if i not in chosen)
        return any(assigned((*chosen, i)) for i in rest)

    return any(assigned((i,)) for i in range(len(theirs)))
