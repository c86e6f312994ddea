"""Letters and answers by the patterns of MMLU-Pro, GPQA and BIG-Bench Hard."""

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from ludic_gym.graders.benchmark_rules import (
    bbh_answer,
    best_assignment,
    drop_scores,
    gpqa_letter,
    hotpot_scores,
    mmlu_pro_letter,
)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("the answer is (C).", "C"),
        ("The answer is C", "C"),
        # The first "answer is" decides, not the last.
        ("The answer is (A). No, the answer is (B).", "A"),
        ("Answer: D", "D"),
        ("answer: B\nAnswer: C", "B"),
        ("Answer: B, Answer: C", "C"),
        ("I take B over A", "A"),
        # A letter that stands alone, as an article too.
        ("A good question", "A"),
        ("the answer is (K)", None),
        ("answer is", None),
        ("", None),
    ],
)
def test_mmlu_pro(reply, letter):
    assert mmlu_pro_letter(reply) == letter


def published_mmlu_pro(text):
    """The three published patterns, as they are."""
    for pattern, flags in (
        (r"answer is \(?([A-J])\)?", 0),
        (r".*[aA]nswer:\s*([A-J])", 0),
        (r"(\b[A-J]\b)(?!.*\b[A-J]\b)", re.DOTALL),
    ):
        if match := re.search(pattern, text, flags):
            return match[1]
    return None


@given(
    st.lists(
        st.sampled_from(["answer is ", "Answer:", "answer:", "(", ")", "A", "B", "x", " ", "\n"])
    )
)
def test_mmlu_pro_is_that_of_the_published_patterns(pieces):
    text = "".join(pieces)
    assert mmlu_pro_letter(text) == published_mmlu_pro(text)


def test_a_long_line_takes_no_quadratic_time():
    start = time.process_time()
    assert mmlu_pro_letter("ab" * 500_000) is None
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The correct answer is (B)", "B"),
        ("(A) is wrong. The correct answer is (B).", "B"),
        ("Answer: (C)", "C"),
        ("I choose (D)", "D"),
        # The first match of a pattern decides, and is no option here.
        ("(x) or (A)", None),
        ("The correct answer is B", None),
    ],
)
def test_gpqa(reply, letter):
    assert gpqa_letter(reply) == letter


@pytest.mark.parametrize(
    ("reply", "truth", "answer"),
    [
        ("So the answer is True.", "True", "True"),
        ("not ( True ) is False. So the answer is False", "False", "False"),
        ("The answer is 2. So the answer is 3.\nDone", "3", "3"),
        ("so the answer is (C).", "(C)", "(C)"),
        ("So the answer is (C) Sunday, not (D).", "(C)", "(C)"),
        ("So the answer is C.", "(C)", "C"),
        ("thinking\nvalid", "valid", "valid"),
        ("So the answer is", "valid", None),
        ("So the answer is ] > .", "] >", "] >"),
    ],
)
def test_bbh(reply, truth, answer):
    assert bbh_answer(reply, truth) == answer


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
