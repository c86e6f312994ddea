"""Labelled replies for every grader, kept in replies.jsonl.

    cd tests && python -m replies     # make the file anew

The labels come from how a reply is made: a value that sympy compares, an amount of a table of
units, a letter, a program that is known to be right or wrong. No grader decides one.
"""

import json
from dataclasses import asdict
from pathlib import Path
from random import Random

from replies.layouts import Row

FILE = Path(__file__).with_name("replies.jsonl")


def load() -> list[Row]:
    """The rows of the file."""
    return [Row(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]


def made() -> list[Row]:
    """The rows, made anew and without repetitions."""
    # Here, because sympy is not needed to read the file.
    from replies import choices, maths, near, numbers, programs, quantities, rules, texts

    parts = (maths, near, quantities, numbers, choices, texts, programs, rules)
    return list(dict.fromkeys(row for part in parts for row in part.rows(Random(part.__name__))))


def written(rows: list[Row]) -> str:
    """The text of the file."""
    return "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
