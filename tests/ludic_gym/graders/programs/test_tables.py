"""Tables of queries by the rules of Spider and BIRD, and in a second way."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.graders.programs.compare import is_same_by_columns, is_same_set, is_same_text


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


@pytest.mark.parametrize("forged", [None, 3, [1], [{"list": 1}], "rows", {"tuple": []}])
def test_a_forged_reply_is_no_table(forged):
    assert not is_same_set(forged, trees((1,)))
    assert not is_same_by_columns(forged, trees((1,)), ordered=False)


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
