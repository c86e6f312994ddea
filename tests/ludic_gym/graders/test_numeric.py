import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import DataError
from ludic_gym.graders.numeric import grade_number, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("85", 85),
        ("-3", -3),
        ("\u22123", -3),
        ("$1,234.50", Decimal("1234.5")),
        ("$-5", -5),
        (".5", Decimal("0.5")),
        ("50%", 50),
        ("1/2", Fraction(1, 2)),
        ("2/4", Decimal("0.5")),
        ("1/0", None),
        ("**18**", 18),
        ("$18$", 18),
        ("１８", 18),
        ("1 800", 1800),
        ("70\u202f000.5", Decimal("70000.5")),
        ("1 8000", None),
        ("₹1,800", 1800),
        ("7,00", None),
        ("18 dollars", None),
        ("9**9**9", None),
        ("1.072e3", 1072),
        ("1 1/2", Fraction(3, 2)),
        ("1e9999", None),
        ("nan", None),
        ("", None),
        ("9" * 201, None),
    ],
)
def test_a_number_has_an_exact_value(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("85", "bare"),
        ("85 pens", "bare"),
        ("<answer>85</answer>", "tag"),
        ("So 40 + 45.\n<ANSWER> 85 pens </ANSWER>", "tag"),
        ("<answer>\\boxed{85}</answer>", "tag"),
        ("<answer>85</answer> that is <answer>85.0</answer>", "tag"),
        ("\\boxed{0{,}085}", "boxed"),
        ("It is $\\boxed{85\\text{ pens}}$.", "boxed"),
        ("\\boxed{\\frac{170}{2}}", "boxed"),
        ("\\boxed{\\dfrac{170}{2}} or \\boxed{85}", "boxed"),
        ("\\boxed {85\\%}", "boxed"),
        ("\\boxed{85\\text{ ft}^2}", "boxed"),
        ("\\boxed{85\\,^{\\circ}\\text{C}}", "boxed"),
        ("The answer is 85°.", "phrase"),
        ("The answer is 85hrs", "phrase"),
        ("40 + 45 = 85\n#### 85", "hashes"),
        ("#### 84\nNo:\n#### $85", "hashes"),
        ("The final answer is: **85** pens per day.", "phrase"),
        ("Answer: $85. It was easy.", "phrase"),
        ("Answer:\n\n85\n\nI checked it twice.", "phrase"),
        ("the answer is 12. No, the answer is 85!", "phrase"),
        ("<think>It is 12 or 13</think>85", "bare"),
        ("<think><answer>12</answer></think>\\boxed{85}", "boxed"),
    ],
)
def test_the_answer_is_found_where_it_is_marked(text, rule):
    grade = grade_number(text, "85")
    assert (grade.correct, grade.rule) == (True, rule)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "none"),
        ("Ann has 85 pens, so she has 85.", "none"),
        ("<answer>84</answer> <answer>85</answer>", "ambiguous"),
        ("\\boxed{84} ... \\boxed{85}", "ambiguous"),
        ("<answer>85 or 86</answer>", "tag"),
        ("<answer>85 hundred</answer>", "tag"),
        ("<answer>85 thousand</answer>", "tag"),
        ("<answer>85 times ten</answer>", "tag"),
        ("<answer>85x</answer>", "tag"),
        ("<answer>85^2</answer>", "tag"),
        ("<answer>85° 30'</answer>", "tag"),
        ("<answer>half of 85</answer>", "tag"),
        ("<answer>\\text{half of }85</answer>", "tag"),
        ("\\boxed{8\\frac{5}{1}}", "boxed"),
        ("<answer>85 minus one</answer>", "tag"),
        ("<answer>84</answer> #### 85", "tag"),
        ("\\boxed{85", "none"),
        ("<answer>85", "none"),
        ("<think>The answer is 85", "unfinished"),
        ("<think>85</think>", "none"),
        ("<think>85</think>86", "bare"),
        ("The answer is 85 + 1", "phrase"),
        ("My answer isn't 85", "none"),
        ("#### " + "8" * 300, "hashes"),
        ("The answer is" + " " * 5000 + "85", "none"),
        ("0.85", "bare"),
        ("8,5", "none"),
    ],
)
def test_what_is_no_single_answer_is_not_correct(text, rule):
    grade = grade_number(text, "85")
    assert (grade.correct, grade.rule) == (False, rule)


def test_equality_is_exact():
    assert grade_number("1/3", "1/3").correct
    assert grade_number(r"\boxed{0.\overline{3}}", "1/3").correct
    assert not grade_number("0.3333333333333333", "1/3").correct
    assert not grade_number(
        "100000000000000000000000000000.1", "100000000000000000000000000000"
    ).correct


@pytest.mark.parametrize("truth", ["", "eighty", "1/0"])
def test_a_truth_that_is_no_number_is_an_error_of_the_data(truth):
    with pytest.raises(DataError, match="truth must be a number"):
        grade_number("85", truth)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" * 125_000,
        "</answer>" * 100_000 + "<answer>" * 10_000,
        "\\boxed{" * 150_000,
        "\\boxed" + "{" * 10**6,
        "answer is " * 100_000,
        "#### " * 200_000,
        "answer is" + " 1,111" * 200_000,
        "9" * 10**6,
        " " * 10**6 + "x",
        "<think>" * 150_000,
        "</think>" * 120_000,
        "\\frac{" * 10**5 + "\\boxed{9}" * 10,
        "<answer>" + "\\text{" * 33 + "</answer>",
    ],
    ids=lambda text: f"{text[:12]!r}",
)
def test_a_hostile_megabyte_is_graded_in_no_time(text):
    start = time.process_time()
    grade_number(text, "85")
    assert time.process_time() - start < 1.0


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "{}.00", "${}", "{}%"]))
def test_every_integer_is_recognised_however_it_is_written(number, style):
    written = style.format(number) if number >= 0 or "$" not in style else f"-${-number}"
    for text in (written, f"<answer>{written}</answer>", f"so\n#### {written}"):
        assert grade_number(text, str(number)).correct
        assert not grade_number(text, str(number + 1)).correct


@given(st.text(st.characters(categories=["Nd"]), min_size=1, max_size=210))
def test_digits_of_any_script_are_a_number_as_with_a_sign_before_them(digits):
    # With the sign, the pattern reads them; without it, they are known by their digits alone.
    signed = parse_number(f"+{digits}") if len(digits) < 200 else None
    assert parse_number(digits) == (Decimal(digits) if len(digits) == 200 else signed)
    assert grade_number(f"<answer>{digits}</answer>", "7").correct == (signed == 7)


def test_long_numbers_are_not_rounded():
    digits = "1234567890" * 5
    assert grade_number(f"-{digits}", f"-{digits}").correct
    assert not grade_number(f"-{digits}", f"-{digits[:-1]}1").correct
    assert not grade_number(f"{digits}/3", f"{digits[:-1]}1/3").correct
