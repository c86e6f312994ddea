"""Tests of programs, and verdicts on them: frozen data."""

from dataclasses import dataclass
from typing import Literal

# Read beside the tests that name what a program defines.
from ludic_gym.graders.programs.blocks import program_in as program_in
from ludic_gym.graders.programs.plain import Tree

Outcome = Literal["passed", "wrong", "raised", "timeout", "crashed", "syntax", "missing", "empty"]
"""`wrong` result, `raised` an exception (or exited with a code other than 0), `timeout` of wall or
CPU time, `crashed` for lack of memory or in any other way, `syntax` error, a function that is
`missing`, or an `empty` program."""

Compared = Literal["value", "unordered", "truth", "wrapped"]
Comparator = Literal["exact", "words", "numbers", "lines"]
Match = Literal["rows", "columns", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTests:
    """Calls of a function, and the expected results.

    name: the function; "Solution.area" for a method of a class that is made without arguments for
        each call, or a function `area` where the program has no such class.
    calls: the positional arguments of each, as trees. expected: as trees.
    reference: instead of `expected`, a program that computes the results. Calls for which it
        raises, or returns no plain data, are left out.
    prelude: a program that is run before the solution, such as imports.
    atol: tolerance for floats, besides a ten-millionth of their size.
    compared: "value", "unordered" (as sets), "truth" (both true or both false), or "wrapped" (the
        value, or the only member of an expected list).

        CallTests(name="area", calls=((2, 3), (0, 1)), expected=(6, 0))
        CallTests(name="area", calls=((2, 3), (0, 1)), reference="def area(a, b): return a * b")
    """

    name: str
    calls: tuple[tuple[Tree, ...], ...]
    expected: tuple[Tree, ...] = ()
    reference: str = ""
    prelude: str = ""
    atol: float = 1e-6
    compared: Compared = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTests:
    """Test programs that call the function by its name, or as `candidate`, and fail by raising.

    tests: source texts. They share one namespace, in which `prelude` has been run. It is run before
    the solution too.
    in_place: True if the tests see the function's changes to lists, dicts and sets among its
        arguments. A function that empties `xs` then passes a test like `f(xs) == sorted(xs)`.

        AssertTests(name="area", tests=("assert area(2, 3) == 6", "assert area(0, 1) == 0"))
    """

    name: str
    tests: tuple[str, ...]
    prelude: str = ""
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTests:
    r"""Pairs of a program's input and its expected output.

    comparator: "exact" (except for line breaks at the end), "words" (ignoring white space), or
        "numbers" (words; numbers may differ by `tolerance`, absolute or relative), or "lines"
        (without outer white space of each line; lines of numbers by value).
    case_s: seconds for each pair.

        StdinTests(cases=(("2 3\n", "6\n"), ("0 1\n", "0\n")))
    """

    cases: tuple[tuple[str, str], ...]
    comparator: Comparator = "words"
    tolerance: float = 1e-6
    case_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTests:
    """A database, and the expected rows of a query.

    schema: the SQL that creates and fills the database. rows: as trees of tuples.
    database: instead of `schema`, the path of a SQLite file; changed_ns: its time of change.
    reference: instead of `rows`, a query that finds them.
    ordered: True if the order of rows matters.
    match: "rows" (equally often, numbers to nine digits), "columns" (also with the columns in any
        order, values exactly) or "set" (values exactly, neither order nor repetitions).

        QueryTests(
            schema="create table t (x int); insert into t values (1), (2);",
            reference="select sum(x) from t",
        )
    """

    schema: str = ""
    rows: tuple[Tree, ...] = ()
    reference: str = ""
    ordered: bool = False
    database: str = ""
    changed_ns: int = 0
    match: Match = "rows"


ProgramTests = CallTests | AssertTests | StdinTests | QueryTests


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of the tests of a program.

    passed, total: numbers of tests; tests that were skipped after a failure have not passed.
    failed: index of the first failure; -1 if there was none, or if no test was run.
    message: the failure, in at most `MESSAGE_LIMIT` characters, without expected results.
    printed: the end of the program's stderr, for functions of stdout too.
    """

    outcome: Outcome
    passed: int
    total: int
    failed: int = -1
    message: str = ""
    printed: str = ""


MESSAGE_LIMIT = 500
PRINTED_LIMIT = 2000
