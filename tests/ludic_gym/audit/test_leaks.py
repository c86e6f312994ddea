import base64
import datetime
import time

import pytest

from ludic_gym.audit.answers import clock_jumps, hedges
from ludic_gym.audit.leaks import contains, extractor
from ludic_gym.audit.subject import in_budget


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("the word is crane", "CRANE", True),
        ("cranes", "crane", False),
        ("id: enarc", "crane", True),
        ("id: penar", "crane", True),
        ("id: 6372616e65", "crane", True),
        (base64.b64encode(b"crane").decode(), "crane", True),
        (base64.b64encode(b"seat").decode(), "crane", False),
        ("42", "42", True),
        ("142", "42", False),
        ("3.42", "42", False),
        # Reversed, 24 is another number.
        ("24", "42", False),
    ],
)
def test_an_answer_is_found_in_its_codes(text, answer, found):
    assert contains(text, answer) is found


def test_an_extractor_is_the_text_before_the_answer():
    texts = [f"{i} + {i}? key={2 * i}." for i in range(10, 20)]
    answers = [str(2 * i) for i in range(10, 20)]
    mark, rate = extractor(texts, answers)
    assert mark.endswith("key=")
    assert rate == 1.0


def test_no_extractor_is_found_where_answers_have_no_common_mark():
    texts = [f"Is {a} or {b} larger?" for a, b in [(1, 20), (31, 4), (5, 66), (78, 9)] * 3]
    answers = ["20", "31", "66", "78"] * 3
    assert extractor(texts, answers) is None


def test_hedges_contain_the_right_answer():
    replies = hedges("<answer>{}</answer>", "42", ["17", "8"])
    assert all("42" in reply for reply in replies.values())
    assert replies["two marked answers"] == "<answer>17</answer> <answer>42</answer>"
    assert "wrong or right" not in hedges("{}", "42", ["17"])


def test_clocks_jump_and_come_back():
    before = time.time()
    with clock_jumps(3600.0) as jump:
        assert 3500 < time.time() - before < 3700
        jump()
        assert 7100 < time.time() - before < 7300
        ahead = datetime.datetime.now().timestamp() - before
        assert 7100 < ahead < 7300
        assert time.time_ns() - before * 1e9 > 7100e9
    assert time.time() - before < 60


def test_a_measurement_has_four_values_at_least():
    assert list(in_budget(range(9), budget_s=-1.0)) == [0, 1, 2, 3]
    assert list(in_budget(range(9), budget_s=60.0)) == list(range(9))
