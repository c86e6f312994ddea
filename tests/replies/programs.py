"""Replies with programs and queries, in the forms of `program_forms`: right and wrong ones."""

import json
from collections.abc import Iterator
from random import Random

from program_forms import replies

from replies.layouts import Row

# The name, calls and results of a function, by hand, with a right and a wrong program.
FUNCTIONS = (
    ("add", [[1, 2], [-1, 1]], [3, 0], "def add(a, b):\n    return a + b",
     "def add(a, b):\n    return a - b"),
    ("last", [[[3, 4]], [["x"]]], [4, "x"], "def last(xs):\n    *_, end = xs\n    return end",
     "def last(xs):\n    return xs[0]"),
    ("power", [[7, 6000]], [7**6000], "power = pow", "def power(a, b):\n    return a * b"),
    ("is_even", [[2], [3]], [True, False],
     "def is_even(n):\n    if n % 2:\n        return False\n\n    return True",
     "def is_even(n):\n    return n % 2"),
)  # fmt: skip
# Input and output, with a right and a wrong program.
PROGRAMS = (
    ("1 2\n", "3\n", "print(sum(map(int, input().split())))", "print(input())"),
    ("2\n5\n7\n", "12\n", "import sys\n\nn, *rest = map(int, sys.stdin)\nprint(sum(rest))\nquit()",
     "import sys\n\nprint(sum(map(int, sys.stdin)))"),
)  # fmt: skip
QUERIES = ("SELECT name\nFROM pets\nWHERE age > 2;", "SELECT name FROM pets WHERE age > 3;")
QUERY_FORMS = (
    "```sql\n{}\n```", "```SQL\n{}\n```", "```\n{}\n```", "```sqlite3\n{}\n```", "{}",
    "So:\n\n```sql\n{}\n```\nAlternatively:\n```sql\nSELECT 1\n```", "```sql\n{}",
    "```sql\n{}\n```\n```\n| name |\n|------|\n| Rex |\n```", "The query is:\n\n{}\n\nIt filters.",
    "<think>```sql\nSELECT 1\n```</think>\n```sql\n{}\n```",
)  # fmt: skip


def rows(r: Random) -> Iterator[Row]:
    """Each program in every form."""
    for name, calls, results, *programs in FUNCTIONS:
        truth = json.dumps({"name": name, "calls": calls, "expected": list(map(tree, results))})
        for program, right in zip(programs, (True, False), strict=True):
            for form, reply in replies(program, name).items():
                yield Row("function", form, reply, truth, right)
    for stdin, stdout, *programs in PROGRAMS:
        truth = json.dumps([stdin, stdout])
        for program, right in zip(programs, (True, False), strict=True):
            for form, reply in replies(program, "").items():
                yield Row("program", form, reply, truth, right)
    for query, right in zip(QUERIES, (True, False), strict=True):
        for form in QUERY_FORMS:
            yield Row("query", "query", form.format(query), QUERIES[0], right)


def tree(value: object) -> object:
    """The value as the truth has it: a long integer in hexadecimal."""
    is_long = type(value) is int and value.bit_length() > 63
    return {"int": hex(value)} if is_long else value
