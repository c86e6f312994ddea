"""What a program is tested by, and what came of it: frozen data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ludic_gym.graders.programs.inside.plain import Tree

Outcome = Literal["passed", "wrong", "raised", "timeout", "crashed", "syntax", "missing", "empty"]
"""`wrong` answer, `raised` an exception (or left with an exit code that is not 0), `timeout` of
wall or CPU time, `crashed` for want of memory or in any other way, `syntax` error, a function that
is `missing`, or an `empty` program."""

Compared = Literal["value", "unordered", "truth"]
Comparator = Literal["exact", "words", "numbers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTests:
    """Calls of a function, and what each should give.

    name: the function. calls: the positional arguments of each, as trees. expected: as trees.
    prelude: a program that is run before the solution, such as imports.
    atol: how far floats may be off, besides a ten-millionth of their size.
    compared: "value", "unordered" (as sets), or "truth" (whether both are true or both false).
    """

    name: str
    calls: tuple[tuple[Tree, ...], ...]
    expected: tuple[Tree, ...]
    prelude: str = ""
    atol: float = 1e-6
    compared: Compared = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTests:
    """Calls of a function that should give what they give by the program `reference`.

    Calls for which that raises, or gives no plain data, are left out.
    """

    name: str
    calls: tuple[tuple[Tree, ...], ...]
    reference: str
    prelude: str = ""
    atol: float = 1e-6
    compared: Compared = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTests:
    """Test programs that call the function by its name, or as `candidate`, and fail by raising.

    They share one namespace, in which `prelude` has been run, as it is before the solution.
    in_place: whether they see what the function does to the lists, dicts and sets it is given. A
    test like `f(xs) == sorted(xs)` is passed by a function that empties `xs`.
    """

    name: str
    tests: tuple[str, ...]
    prelude: str = ""
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTests:
    """Pairs of what a program reads and what it should write.

    comparator: "exact" (but for line breaks at the end), "words" (white space does not matter),
        or "numbers" (words, of which two numbers may differ by `tolerance`, absolute or relative).
    case_s: seconds for each.
    """

    cases: tuple[tuple[str, str], ...]
    comparator: Comparator = "words"
    tolerance: float = 1e-6
    case_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTests:
    """A database, and a query whose rows are right.

    schema: the SQL that makes it and fills it. reference: the query. ordered: whether the order of
    the rows counts.
    """

    schema: str
    reference: str
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTests:
    """A database, and the rows that a query should give, as trees of tuples."""

    schema: str
    rows: tuple[Tree, ...]
    ordered: bool = False


ProgramTests = CallTests | ReferenceTests | AssertTests | StdinTests | QueryTests | RowTests


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the tests say of a program.

    passed, total: tests; the ones that were not run any more after a failure have not passed.
    failed: the number of the first that failed, from 0; -1 where none did or none was run.
    message: what was wrong, at most `MESSAGE_LIMIT` characters; it tells no expected output.
    printed: the end of what the program wrote to stderr, and functions to stdout.
    """

    outcome: Outcome
    passed: int
    total: int
    failed: int = -1
    message: str = ""
    printed: str = ""


MESSAGE_LIMIT = 500
PRINTED_LIMIT = 2000

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+.-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)

_THOUGHT = "</think>"


def program_in(text: str, languages: tuple[str, ...] = ("python", "py", "python3")) -> str:
    """The last fenced block in one of the languages, else the last fenced block, else all of it.

    What comes before the end of a thought (`</think>`) is not looked at.
    """
    said = text.rpartition(_THOUGHT)[2]
    blocks = _FENCE.findall(said)
    fitting = [code for language, code in blocks if language.lower() in languages]
    code: str = (fitting or [code for _, code in blocks] or [said])[-1]
    return code.strip("\n")


def is_fenced(text: str) -> bool:
    """Whether there is a fenced block after the thought."""
    return _FENCE.search(text.rpartition(_THOUGHT)[2]) is not None
