"""Graders on the labelled replies, and the program that measures them."""

from collections import Counter

import graders
import pytest
from replies import FILE, load, made, written
from replies.maths import is_same

from ludic_gym.errors import NoSandbox
from ludic_gym.graders.programs.grader import grader_for

ROWS = load()
# Misjudged replies, by a part of them.
KNOWN = {
    "f1": {
        "café au lait espresso": "a common noun more is not told from an adjective",
        "espresso café au lait": "a common noun more is not told from an adjective",
        "oxygen carbon dioxide": "a common noun more is not told from an adjective",
        "carbon dioxide oxygen": "a common noun more is not told from an adjective",
    }
}


def missed(rows):
    """The misjudged rows that are not known."""
    return [
        row
        for row in rows
        if graders.JUDGES[row.grader](row.reply, row.truth) != row.right
        and not any(part in row.reply for part in KNOWN.get(row.grader, ()))
    ]


TEXTS = ["number", "choice", "exact", "f1", "constraints", "mmlu_pro", "gpqa"]


@pytest.mark.parametrize("grader", TEXTS)
def test_every_labelled_reply_is_judged_by_its_label(grader):
    rows = [row for row in ROWS if row.grader == grader]
    assert len(rows) >= 50
    assert missed(rows) == []


@pytest.mark.long
@pytest.mark.parametrize("grader", ["function", "program", "query"])
def test_every_labelled_program_is_judged_by_its_label(grader):
    try:
        grader_for("auto")
    except NoSandbox as error:
        pytest.skip(str(error))
    rows = [row for row in ROWS if row.grader == grader]
    assert len(rows) >= 20
    assert missed(rows) == []


@pytest.mark.long
@pytest.mark.parametrize("part", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_labelled_reply_of_mathematics_is_judged_by_its_label(part):
    pytest.importorskip("math_verify")
    rows = [row for row in ROWS if row.grader == "maths"]
    assert len(rows) >= 1500
    assert missed(rows[::part]) == []


def test_there_are_replies_of_both_labels_and_none_twice():
    counts = Counter((row.grader, row.right) for row in ROWS)
    assert len(ROWS) == len(set(ROWS)) >= 2000
    assert min(counts.values()) >= 10


@pytest.mark.long
def test_the_file_is_what_its_program_makes():
    pytest.importorskip("sympy")
    assert FILE.read_text(encoding="utf-8") == written(made())


def test_labels_of_values_are_those_of_sympy():
    # 2^3 = 8, sin^2 45 degrees = 1/2; the order of a set does not matter, that of a point does.
    pytest.importorskip("sympy")
    assert is_same("log(8,2)", "3")
    assert is_same("sin(pi/4)**2", "Rational(1,2)")
    assert is_same("FiniteSet(1,2)", "FiniteSet(2,1)")
    assert not is_same("(1,2)", "(2,1)")
    assert not is_same("nan", "nan")


@pytest.mark.long
@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_hostile_expression_takes_a_second(count):
    pytest.importorskip("math_verify")
    spent = graders.hostile_cpu_s(count, seed=1)
    assert len(spent) == count
    assert spent[-1] < 1.0


def test_a_grader_that_accepts_everything_is_measured_as_such():
    pairs = [("1", "1", True), ("2", "1", False), ("3", "1", False)]
    result = graders.measured("", "", lambda reply, truth: True, pairs)
    assert (len(result.false_positives), len(result.false_negatives)) == (2, 0)
    assert result.cells()[2:] == ("2 of 2 (100.0%)", "0 of 1 (0.0%)")
