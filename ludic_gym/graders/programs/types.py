"""Tests of programs, and verdicts on them: frozen data."""

import ast
import re
import warnings
from dataclasses import dataclass
from typing import Literal

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
_LONGEST_PARSED = 200_000
# The fence that closes is the one that opened, so that a block may contain others. A reply that was
# cut off may lack it.
_FENCE = re.compile(
    r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n]*\n(.*?)(?:^[ \t]*\2[ \t\r]*$|\Z)", re.M | re.S
)


def program_in(
    text: str, languages: tuple[str, ...] = ("python", "py", "python3"), *, defines: str = ""
) -> str:
    r"""The program in a reply: of several blocks the last that defines a name, else the longest.

    defines: function or class that the program is to define, such as "area" or "Solution.area".
    languages: lower-case names, as they follow a fence's opening; blocks in other languages are
        read only without any of these. Python has to compile, if one of the blocks does.
    Text before the end of a thought (`</think>`) is ignored; a thought that is not closed has no
    program, "". A reply without blocks is the program.

    >>> reply = "```py\ndef f(x): return x\n```\nSuch as:\n```py\nprint(f(2), f(3))\n```"
    >>> program_in(reply, defines="f")
    'def f(x): return x'
    """
    blocks = blocks_in(text, languages)
    names = "|".join(map(re.escape, filter(None, defines.split("."))))
    defining = re.compile(rf"^(?:async\s+def|def|class)\s+(?:{names})\b|^(?:{names})\s*=", re.M)
    if defines and (fitting := [block for block in blocks if defining.search(block)]):
        return fitting[-1]
    if "python" in languages and len(blocks) > 1:
        blocks = [block for block in blocks if _compiles(block)] or blocks
    # Of equally long ones the last: models mend what they wrote first.
    return max(reversed(blocks), key=len, default="")


def blocks_in(text: str, languages: tuple[str, ...]) -> list[str]:
    """The fenced blocks of a reply in one of the languages, in order.

    Without any: those that name no language, else all of them, else the whole reply. A block
    without its closing fence ends with the text. The indent of its fence is taken from its lines.
    """
    reply = _after_thought(text)
    blocks = [
        (language.lower(), re.sub(f"^{indent}", "", code, flags=re.M).strip("\n"))
        for indent, _, language, code in _FENCE.findall(reply)
    ]
    fitting = [code for language, code in blocks if language in languages]
    untagged = [code for language, code in blocks if not language]
    return fitting or untagged or [code for _, code in blocks] or [reply.strip("\n")]


def _compiles(code: str) -> bool:
    """True if Python parses the code. A text too long to be worth it counts as such."""
    if len(code) > _LONGEST_PARSED:
        return True
    try:
        with warnings.catch_warnings():
            # Such as an invalid escape in a string, which is the model's own.
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def is_fenced(text: str) -> bool:
    r"""True if there is a fenced block after the thought.

    >>> is_fenced("```python\nx = 1"), is_fenced("x = 1")
    (True, False)
    """
    return _FENCE.search(_after_thought(text)) is not None


def _after_thought(text: str) -> str:
    """The reply after its thought; "" for a thought that is not closed, whose drafts are none."""
    _, closed, reply = text.rpartition("</think>")
    return reply if closed or "<think>" not in reply else ""
