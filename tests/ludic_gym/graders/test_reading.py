"""Scores of DROP and HotpotQA, worked out by hand and in a second way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from ludic_gym.graders.benchmark_rules import best_assignment, drop_scores, hotpot_scores


@pytest.mark.parametrize(
    ("parts", "answers", "em", "f1"),
    [
        (["The Bears"], [["bears"]], 1, 1),
        # "4" of "4 yards": precision 1/2, recall 1.
        (["4 yards"], [["4"]], 0, 0.67),
        # The number decides: 5 is not 4, however many words agree.
        (["5 yards"], [["4 yards"]], 0, 0),
        (["4.0"], [["4"]], 1, 1),
        (["1,000"], [["1000"]], 1, 1),
        # One of two parts: 1 / 2.
        (["Bears"], [["Bears", "Packers"]], 0, 0.5),
        # In any order, each part once: the best assignment pays both.
        (["Packers", "Bears"], [["Bears", "Packers"]], 1, 1),
        (["Bears", "Bears"], [["Bears", "Packers"]], 0, 0.5),
        # The best of the annotators.
        (["Lions"], [["Bears"], ["Detroit Lions"]], 0, 0.67),
        (["twenty-two"], [["twenty two"]], 1, 1),
        # An article alone is no word: an empty bag has precision 1 and recall 0.
        (["the"], [["Bears"]], 0, 0),
        (["x"], [[" "]], 0, 0),
        (["12 May 1802"], [["12 May 1802"], ["May 1802"]], 1, 1),
    ],
)
def test_drop(parts, answers, em, f1):
    assert drop_scores(parts, answers) == (em, f1)


@given(
    st.integers(1, 6).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(0, 4), min_size=columns, max_size=columns), min_size=1, max_size=6
        )
    )
)
def test_the_assignment_is_that_of_scipy(rows):
    scores = np.array(rows) / 4
    chosen = linear_sum_assignment(-scores)
    assert best_assignment(scores) == pytest.approx(scores[chosen].sum())


@given(st.lists(st.text("ab 1-", max_size=6), min_size=1, max_size=4))
def test_drop_pays_an_answer_for_itself(parts):
    if parts[0].strip():
        assert drop_scores(parts, [parts]) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "truth", "em", "f1"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1, 1),
        # Two of three words: precision 2/3, recall 1.
        ("old Eiffel Tower", "Eiffel Tower", 0, 0.8),
        ("yes", "yes", 1, 1),
        ("yes, they are", "yes", 0, 0),
        ("no", "no idea", 0, 0),
        ("Bonn", "Berlin", 0, 0),
        # Two of each of three and two words.
        ("a b b", "b b", 1, 1),
        ("c b b", "b b", 0, 0.8),
    ],
)
def test_hotpotqa(answer, truth, em, f1):
    assert hotpot_scores(answer, truth) == (em, pytest.approx(f1))
