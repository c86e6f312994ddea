"""Solvers of tasks by their text alone, against sums and worlds that are worked out here."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.deciders import arithmetic, follows, knights, syllogism


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Calculate -5274 - -3085.", "-2189"),
        ("Calculate ( -( -( 9 / 3 ) ) ) / 1.", "3"),
        ("State the final answer to the following arithmetic problem: 5 - 3 - 3 =", "-1"),
        ("What is 3 × 4?", "12"),
        ("What is 1 / 8?", "0.125"),
        ("Solve the following multiplication: 24039 * 52057. Give only the result.", "1251398223"),
    ],
)
def test_an_expression_is_computed(text, value):
    assert arithmetic(text) == (value,)


@pytest.mark.parametrize(
    "text",
    [
        "What is 1 / 3?",
        "What is 7?",
        "What is 2 ** 9999999?",
        "What is 1 / 0?",
        "What is 5 + 4, rounded to tens?",
        "What is 5 + 4? And what is 6 + 4?",
        "Find the GCD of these numbers: 228, 473.",
        "Ann has 17 nuts and gets 82 more nuts.",
        "What is the year 1990 - a good one?",
        "",
    ],
)
def test_what_is_no_plain_expression_is_not_decided(text):
    assert arithmetic(text) == ()


@given(st.lists(st.integers(0, 999), min_size=2, max_size=6), st.data())
def test_sums_and_products_are_pythons(numbers, data):
    signs = data.draw(st.lists(st.sampled_from("+-*"), min_size=len(numbers), max_size=9))
    source = " ".join(f"{n} {s}" for n, s in zip(numbers, signs, strict=False))[:-2]
    assert arithmetic(f"What is {source}?") == (str(eval(source)),)


def test_readings_differ_where_a_kind_may_be_empty():
    given_, then = [("all", "a", "b"), ("all", "b", "c")], ("some", "a", "c")
    assert follows(given_, then) == {True, False}
    assert syllogism("All a are b. All b are c. Does it follow that some a are c?") == ()
    assert follows([("all", "a", "b"), ("all", "c", "d")], then) == set()


RULE = "A knight always tells the truth, a knave always lies.\n"
# Forms of a claim about Ann (a) and Bob (b), who are knights if True.
CLAIMS = {
    "Bob is a knave": lambda a, b: not b,
    "Bob is not a knight": lambda a, b: not b,
    "Ann is a knight and Bob is a knave": lambda a, b: a and not b,
    "Ann is a knave or Bob is a knight": lambda a, b: not a or b,
    "if Ann is a knight then Bob is a knave": lambda a, b: not a or not b,
    "Ann is a knave if and only if Bob is a knight": lambda a, b: (not a) == b,
    "Ann and Bob are of different kinds": lambda a, b: a != b,
    "Of all of us, the number of knights is 1": lambda a, b: a + b == 1,
    "At least one of Ann and Bob is a knave": lambda a, b: not (a and b),
}


@pytest.mark.parametrize(("first", "second"), list(product(CLAIMS, repeat=2)))
def test_knights_are_found_if_one_assignment_fits(first, second):
    fits = [
        (a, b)
        for a, b in product((True, False), repeat=2)
        if CLAIMS[first](a, b) == a and CLAIMS[second](a, b) == b
    ]
    found = knights(f'{RULE}Ann says: "{first}."\nBob says: "{second}."')
    if len(fits) == 1:
        assert found[0] == ", ".join("knight" if kind else "knave" for kind in fits[0])
    else:
        assert found == ()


@pytest.mark.parametrize("claim", ["Bob is tall", "Cy is a knave", "Bob is a spy", "1 + 1 is 2"])
def test_a_claim_that_cannot_be_read_leaves_all_open(claim):
    assert knights(f'{RULE}Ann says: "{claim}."\nBob says: "Ann is a knight."') == ()
