"""Units and words beside a value, in the graders that read them."""

from fractions import Fraction

import pytest

from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.numeric import grade_number
from ludic_gym.graders.units import UNIT_OF, ratio, unit_of


def is_right(answer, truth):
    return grade_maths(f"\\boxed{{{answer}}}", truth).correct


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        (r"36\text{ km/h}", r"10\text{ m/s}"),  # 36,000 m in 3,600 s
        ("90 minutes", "1.5 hours"),
        (r"1\text{ m}^2", r"10000\text{ cm}^2"),
        ("5 litres", "5000 mL"),
        (r"2\text{ L}", r"2000\text{ cm}^3"),
        ("2 tonnes", "2000 kg"),
        ("24 months", "2 years"),
        ("50 cents", r"\$0.50"),
        ("5 euros", "€5"),
        ("60 mph", "60 miles per hour"),
        (r"60 \frac{\text{km}}{\text{h}}", "60 km/h"),
        (r"9.8\text{ m}\,\text{s}^{-2}", r"9.8\text{ m/s}^2"),
        (r"4:15 \text{ p.m.}", r"4:15 \text{ PM}"),
        ("3:30 pm", "3:30 P.M."),
        (r"5^\circ\text{C}", r"5^\circ"),
        ("$28$ percent", r"28\%"),
        (r"18 \text{ square units}", r"18\text{ cm}^2"),
        ("12", "12 boys"),
        ("12 red apples", "12 apples"),
        ("5 in all", "5"),
        (r"f \text{ is odd}", r"f\text{ is odd}"),
    ],
)
def test_an_equal_quantity_is_right_in_any_unit_of_its_kind(answer, truth):
    assert is_right(answer, truth)
    assert is_right(truth, answer)


def test_an_expression_is_compared_in_the_unit_of_the_truth():
    pytest.importorskip("math_verify")
    assert is_right(r"10\sqrt{2}\text{ m}", r"1000\sqrt{2}\text{ cm}")
    assert not is_right(r"10\sqrt{2}\text{ m}", r"10\sqrt{2}\text{ cm}")
    assert not is_right(r"10\pi\text{ cm}^2", r"10\pi\text{ cm}^3")


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        (r"36\text{ km/h}", r"36\text{ m/s}"),
        ("60 mph", "60 km/h"),
        ("5 litres", "5 gallons"),
        ("5 tonnes", "5 kg"),
        ("5 km", "5 km/h"),
        ("$5 per person", "$5 per hour"),
        ("5 m", "5 s"),
        ("5 MB", "5 GB"),
        ("5°C", "5°F"),
        ("€5", "$5"),
        ("5 euros", "5 dollars"),
        (r"50\%", r"\$50"),
        (r"40^\circ \text{ N}", r"40^\circ \text{ S}"),
        ("3:30 a.m.", "3:30 p.m."),
        ("3:30pm", "3:30am"),
        (r"7\text{ p.m.}", r"7\text{ a.m.}"),
        (r"5\text{ km north}", r"5\text{ km south}"),
        ("5 units left", "5 units right"),
        ("12 boys", "12 girls"),
        (r"3\text{ heads}", r"3\text{ tails}"),
        (r"6\text{ years older}", r"6\text{ years younger}"),
        (r"x=3 \text{ (maximum)}", r"x=3 \text{ (minimum)}"),
        (r"f \text{ is odd}", r"f \text{ is even}"),
        ("y = 3", "x = 3"),
        ("12 grand", "12"),
        ("80 permille", "80"),
    ],
)
def test_another_unit_direction_time_or_category_is_wrong(answer, truth):
    assert not is_right(answer, truth)


def test_a_sum_of_money_is_a_number_in_its_currency():
    assert grade_number("500 cents", "$5").correct
    assert grade_number("5", "$5").correct
    wrong = ("€5", "$5"), ("5 euros", "$5"), ("$50", "50%"), ("5 dollars", "€5")
    assert [pair for pair in wrong if grade_number(*pair).correct] == []


def test_a_space_of_latex_parts_no_thousands_and_joins_no_numbers():
    assert grade_number(r"\boxed{1\,234}", "1234").correct
    for answer in (r"3\,4", r"3\ 4", r"3\quad 4", "3_4"):
        assert not grade_number(rf"\boxed{{{answer}}}", "34").correct


def test_a_ratio_is_exact():
    # 1 mile is 1,609.344 m.
    assert ratio("1 mile", "1 m") == Fraction("1609.344")
    assert ratio("1 km/h", "1 m/s") == Fraction(5, 18)
    assert ratio("1 m", "1 m^2") is None


@pytest.mark.parametrize("name", sorted(UNIT_OF.keys() - {"$", "us$"}))
def test_every_spelling_of_the_table_is_read_as_its_unit(name):
    # Degrees of a scale are written °C, and in capitals.
    text = f"5 {name.upper() if name.startswith('°') else name}"
    assert (unit := unit_of(text)) is not None
    assert unit.size == UNIT_OF[name][1]
