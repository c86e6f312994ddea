import base64
import datetime
import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.audit.answers import clock_jumps, hedges
from ludic_gym.audit.codes import codes_of, decides, numbers_of
from ludic_gym.audit.leaks import extractor
from ludic_gym.audit.subject import in_budget

CRANE = [
    ("the word is crane", "plain"),
    ("id: enarc", "reversed"),
    ("id: penar", "letters moved by 13"),
    ("id: 6372616e65", "hexadecimal digits"),
    ("63 72 61 6e 65", "hexadecimal digits"),
    (base64.b64encode(b"crane").decode(), "base64"),
    (base64.b64encode(b"so it is crane").decode().rstrip("="), "base64"),
    (base64.b32encode(b"crane").decode(), "base32"),
    (" ".join(f"{ord(c):08b}" for c in "crane"), "binary digits"),
    ("[99, 114, 97, 110, 101]", "character codes"),
    ("[109, 124, 107, 120, 111]", "character codes"),
    ("fudqh", "letters moved by 23"),
    ("%63rane", "entities"),
    ("c-r-a-n-e", "separated letters"),
    ("Cats run at night everywhere", "first letters"),
    (hashlib.md5(b"crane").hexdigest(), "a hash"),
    ("a" + "".join(chr(0xE0000 + ord(c)) for c in "crane"), "invisible characters"),
]


@pytest.mark.parametrize(("text", "code"), CRANE)
def test_an_answer_is_found_in_its_codes(text, code):
    assert code in codes_of(text, "CRANE" if code == "plain" else "crane")
    # Another answer is in none of them.
    assert list(codes_of(text, "stork")) == []


@pytest.mark.parametrize("zero", ["\u200b", "\u200c"])
@pytest.mark.parametrize("size", [7, 8])
def test_an_answer_is_found_in_characters_without_width(zero, size):
    one = "\u200b\u200c".replace(zero, "")
    bits = "".join(f"{ord(c):0{size}b}" for c in "crane")
    text = "Which?" + bits.replace("0", zero).replace("1", one)
    assert list(codes_of(text, "crane")) == ["invisible characters"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("cranes", "crane"),
        ("142", "42"),
        ("3.42", "42"),
        # Reversed, 24 is another number.
        ("24", "42"),
        (base64.b64encode(b"seat").decode(), "crane"),
    ],
)
def test_parts_of_words_and_numbers_are_no_answer(text, answer):
    assert list(codes_of(text, answer)) == []


@given(st.text(max_size=300), st.text(min_size=1, max_size=12))
def test_any_text_can_be_read_in_all_codes(text, answer):
    assert all(isinstance(code, str) for code in codes_of(text, answer))


@given(
    st.lists(st.integers(-999, 999), min_size=6, max_size=20, unique=True),
    st.integers(-5, 5).filter(bool),
    st.integers(-99, 99),
)
def test_a_number_that_is_moved_stretched_or_masked_decides_the_answer(answers, factor, moved):
    assert decides([factor * answer + moved for answer in answers], answers)
    assert decides([answer ^ moved for answer in answers], answers)


def test_numbers_without_a_rule_decide_nothing():
    assert not decides([3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8])
    assert numbers_of("row 17, id -4 of 3.5 and v2") == [17, -4]


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
