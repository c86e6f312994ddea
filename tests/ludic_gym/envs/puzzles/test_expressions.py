from fractions import Fraction

import pytest

from ludic_gym.envs.puzzles.countdown import BadExpression, evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1+2)*3", 9),
        ("10 - 3 - 2", 5),
        ("24 / 4 / 3", 2),
        ("1 / 3 * 3", 1),
        ("-(2 - 5)", 3),
        ("2 × 3 ÷ 4 − 1", Fraction(1, 2)),
        ("2⋅3", 6),
        ("[1 + 2] * 3", 9),
        (r"$2 \times \left(5 - 3\right)$", 4),
        (r"\(8 \div 2 \cdot 3\)", 12),
    ],
)
def test_values_are_exact(text, value):
    assert evaluate(text).value == value


def test_the_numbers_are_told_in_order():
    assert evaluate("25 * (5 - 3)").numbers == (25, 5, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        r"2 \times\times 3",
        r"2 \timesx 3",
        r"\frac{4}{2}",
        "1 2",
        "(1",
        "1)",
        "1 / (2 - 2)",
        "2 ** 3",
        "9**9**9",
        "2 // 1",
        "+1",
        "1.5",
        "x",
        "__import__('os')",
        "1e9",
        "1_000",
        "1" * 10,
        "५",
        "²",
        "(" * 199,
        "1+" * 150 + "1",
    ],
)
def test_anything_else_is_no_expression(text):
    with pytest.raises(BadExpression):
        evaluate(text)
