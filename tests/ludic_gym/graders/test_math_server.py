import math

import pytest

sympy = pytest.importorskip("sympy")

from ludic_gym.graders.math_server import MOST_BITS, is_expensive, size_of  # noqa: E402


def value(text):
    # parse_expr(evaluate=False) evaluates functions.
    with sympy.evaluate(False):
        return sympy.parse_expr(text)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        # 8 has 4 bits and its denominator 1.
        ("8", 5),
        # 1/3: 1 + 2 bits.
        ("Rational(1, 3)", 3),
        # 10 times the 3 bits of 2/1, and the 5 of the exponent 10/1.
        ("2**10", 35),
    ],
)
def test_the_size_of_a_value_is_known_from_its_structure(text, bits):
    assert size_of(value(text)).bits == pytest.approx(bits)


def test_the_bound_holds_for_values_that_can_be_evaluated():
    for text in ("3**50", "7**7*11**9", "factorial(30)", "binomial(60, 30)", "5**3 + 2**90"):
        exact = sympy.Integer(value(text).doit())
        assert size_of(value(text)).bits >= exact.p.bit_length()
        assert size_of(value(text)).magnitude >= math.log2(exact) - 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "9**(9**(9**9))",
        "factorial(10**6)",
        "factorial(factorial(30))",
        "binomial(10**6, 10**5)",
        "(x + y + z)**500",
        "x**1000000 - 1",
        "Sum(1/k, (k, 1, 10**6))",
        "Integral(sin(x**2), x)",
        "sqrt(2 + sqrt(3 + sqrt(5 + sqrt(7))))",
        "Float('1e100000')",
        "gamma(10**7)",
        "exp(exp(exp(9)))",
    ],
)
def test_what_could_take_long_is_expensive(text):
    assert is_expensive(value(text))


@pytest.mark.parametrize(
    "text",
    ["2**2023", "factorial(100)", "(x + 1)**10", "x**2 + x**3", "sqrt(2 + sqrt(3))", "1/3", "2**x"],
)
def test_what_people_answer_is_not(text):
    assert not is_expensive(value(text))
    assert size_of(value(text)).bits < MOST_BITS
