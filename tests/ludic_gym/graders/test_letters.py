"""Letters and answers by the patterns of MMLU-Pro, GPQA and BIG-Bench Hard."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.graders.benchmark_rules import bbh_answer, gpqa_letter, mmlu_pro_letter


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
