"""Tables of queries by the rules of Spider and BIRD, and in a second way."""

import math
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.graders.programs.compare import (
    is_same,
    is_same_by_columns,
    is_same_set,
    is_same_text,
)
from ludic_gym.graders.programs.plain import encoded

SAME = [
    (1, 1.0),
    (True, 1),
    (0.1 + 0.2, 0.3),
    (2**70, 2**70),
    ([1, (2, 3)], [1, (2, 3)]),
    ({1, 2.0}, {2, 1}),
    ({1}, frozenset({1})),
    ({"a": 0.3, 2: [None]}, {2: [None], "a": 0.1 + 0.2}),
    (math.nan, math.nan),
    (math.inf, math.inf),
    (b"ab", b"ab"),
    (range(3), range(3)),
    (1 + 2j, 1 + 2j),
]
DIFFERENT = [
    (1, 2),
    ([1, 2], (1, 2)),
    ([1, 2], [1, 2, 3]),
    ({1, 2}, {1, 3}),
    ({1, 2}, [1, 2]),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1}, {"b": 1}),
    ("1", 1),
    ("None", None),
    (None, 0),
    (math.nan, 1.0),
    (math.inf, 1.0),
    (1.0, math.inf),
    (math.inf, -math.inf),
    (2**70, 2**70 + 1),
    (2**2000, 1.5),
    (10**6 + 1, 10**6),
    (b"ab", "ab"),
    (b"ab", bytearray(b"ab")),
    (range(3), range(4)),
    ("", []),
]


@pytest.mark.parametrize(("got", "expected"), SAME)
def test_what_python_takes_for_equal_is_the_same(got, expected):
    assert is_same(encoded(got), encoded(expected), atol=1e-6)


@pytest.mark.parametrize(("got", "expected"), DIFFERENT)
def test_other_values_are_not(got, expected):
    assert not is_same(encoded(got), encoded(expected), atol=1e-6)
    assert not is_same(encoded(expected), encoded(got), atol=1e-6)


def test_floats_may_be_off_by_atol_or_a_ten_millionth():
    assert is_same(1.09, 1.0, atol=0.1)
    assert not is_same(1.11, 1.0, atol=0.1)
    assert is_same(1e9 + 50, 1e9, atol=0.0)
    assert not is_same(1e9 + 200, 1e9, atol=0.0)


@pytest.mark.parametrize(
    ("got", "compared", "same"),
    [
        ([3, 1, 3], "unordered", True),
        ({1, 3}, "unordered", True),
        ([1], "unordered", False),
        (7, "unordered", False),
        (True, "truth", True),
        ([0], "truth", True),
        (None, "truth", False),
        ("", "truth", False),
    ],
)
def test_results_can_be_compared_as_sets_or_by_their_truth(got, compared, same):
    assert is_same(encoded(got), encoded((1, 3)), atol=0.0, compared=compared) is same


@pytest.mark.parametrize(
    "forged",
    [
        {"tuple": 5},
        {"tuple": [1], "set": [1]},
        {},
        {"number": "1"},
        {"int": "x"},
        {"int": 5},
        {"dict": [[1]]},
        {"dict": [1]},
        {"set": [{"set": 3}]},
        {"unheard of": [1]},
        [[[[{"complex": [1, "2", {}]}]]]],
    ],
)
def test_what_is_no_tree_is_never_the_same(forged):
    for expected in (1, 1.5, "1", None, [1], (1,), {1}, {1: 1}, 2**80, b"1", [[[[1j]]]]):
        assert not is_same(forged, encoded(expected), atol=1e9), expected


def test_a_tree_that_is_too_deep_to_look_at_is_not_the_same():
    deep = []
    for _ in range(100_000):
        deep = {"set": [deep]}
    assert not is_same(deep, {"set": [deep]}, atol=0.0)


@pytest.mark.parametrize(
    ("got", "comparator", "same"),
    [
        ("1 2\n3.0\n", "exact", True),
        ("1 2\r\n3.0", "exact", True),
        ("1  2\n3.0\n", "exact", False),
        ("1  2 3.0", "words", True),
        ("1 2 3", "words", False),
        ("1 2 3", "numbers", True),
        ("1 2 3.0000001", "numbers", True),
        ("1 2 3.1", "numbers", False),
        ("1 2", "numbers", False),
        ("1 2 3.0 4", "numbers", False),
        ("1 2 nan", "numbers", False),
        ("1 2 3_0", "numbers", False),
    ],
)
def test_outputs_are_compared_as_the_comparator_says(got, comparator, same):
    assert is_same_text(got, "1 2\n3.0\n", comparator, 1e-6) is same


def test_numbers_beyond_the_range_of_floats_are_compared_exactly():
    large = "7" * 350
    assert is_same_text(large, f"{large}.0", "numbers", 1e-6)
    assert not is_same_text("1e999", large, "numbers", 1e-6)


def trees(*rows):
    return [{"tuple": list(row)} for row in rows]


@pytest.mark.parametrize(
    ("got", "expected", "in_any_order", "in_order", "as_set"),
    [
        ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")], True, True, True),
        ([(2, "b"), (1, "a")], [(1, "a"), (2, "b")], True, False, True),
        # Columns the other way round: Spider's rule alone.
        ([("a", 1), ("b", 2)], [(1, "a"), (2, "b")], True, True, False),
        ([(1,), (1,)], [(1,)], False, False, True),
        ([(1, 2), (3, 4)], [(1, 4), (3, 2)], False, False, False),
        ([(1.0,)], [(1,)], True, True, True),
        ([("1",)], [(1,)], False, False, False),
        ([(None,)], [("None",)], False, False, False),
        ([], [], True, True, True),
        ([], [(1,)], False, False, False),
        # No rounding, unlike the rule of Ludic's own rows.
        ([(0.3,)], [(0.1 + 0.2,)], False, False, False),
    ],
)
def test_the_rules(got, expected, in_any_order, in_order, as_set):
    assert is_same_by_columns(trees(*got), trees(*expected), ordered=False) == in_any_order
    assert is_same_by_columns(trees(*got), trees(*expected), ordered=True) == in_order
    assert is_same_set(trees(*got), trees(*expected)) == as_set


tables = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[st.integers(0, 2)] * width), min_size=1, max_size=4)
)


@given(tables, tables, st.randoms(use_true_random=False))
def test_columns_match_if_one_of_all_permutations_does(table, other, random):
    order = random.sample(range(len(table[0])), len(table[0]))
    moved = random.sample([tuple(row[i] for i in order) for row in table], len(table))
    assert is_same_by_columns(trees(*moved), trees(*table), ordered=False)
    width = len(table[0])
    expected = len(other[0]) == width and any(
        Counter(table) == Counter(tuple(row[i] for i in p) for row in other)
        for p in permutations(range(width))
    )
    assert is_same_by_columns(trees(*other), trees(*table), ordered=False) == expected


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        (" 1 2 \n3", "1 2\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("1.0 2.50\nyes", "1 2.5\nyes", True),
        ("1.0000001", "1", False),
        ("Yes", "yes", False),
        ("1  2", "1 2", True),
        ("a  b", "a b", False),
        ("", "", True),
    ],
)
def test_lines(got, expected, same):
    assert is_same_text(got, expected, "lines", 1e-6) == same
