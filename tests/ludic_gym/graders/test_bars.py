"""Samples of the sets of benchmarks/graders.py; the whole sets are slow."""

import importlib.util
import sys
from pathlib import Path

import pytest

from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.numeric import grade_number
from ludic_gym.graders.text import grade_choice, grade_exact

PROGRAM = Path(__file__).parents[3] / "benchmarks" / "graders.py"


@pytest.fixture(scope="module")
def sets():
    spec = importlib.util.spec_from_file_location("benchmark_graders", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_maths_rejects_near_misses_and_accepts_other_forms(sets, count):
    pytest.importorskip("math_verify")
    missed = sets.measured("maths", "near", grade_maths, sets.near_misses(count, seed=1))
    other = sets.measured("maths", "forms", grade_maths, sets.right_forms(count, seed=1))
    assert (missed.negatives, other.positives) == (count, count)
    assert (missed.false_positives, other.false_negatives) == ((), ())


@pytest.mark.long
@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_hostile_expression_takes_a_second(sets, count):
    pytest.importorskip("math_verify")
    spent = sets.hostile_cpu_s(count, seed=1)
    assert len(spent) == count
    assert spent[-1] < 1.0


@pytest.mark.parametrize(
    ("grade", "pairs"),
    [(grade_number, "number_pairs"), (grade_choice, "choice_pairs"), (grade_exact, "word_pairs")],
    ids=["number", "choice", "exact"],
)
def test_the_other_graders_reject_second_answers_and_accept_layouts(sets, grade, pairs):
    row = sets.measured("", pairs, grade, getattr(sets, pairs)(800, seed=1))
    assert (row.positives, row.negatives) == (400, 400)
    assert (row.false_positives, row.false_negatives) == ((), ())


def test_a_grader_that_accepts_everything_is_measured_as_such(sets):
    def generous(reply, truth):
        return grade_number("1", "1")

    row = sets.measured("", "", generous, sets.number_pairs(100))
    assert (len(row.false_positives), len(row.false_negatives)) == (50, 0)
