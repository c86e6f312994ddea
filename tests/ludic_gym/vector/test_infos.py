import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from ludic_gym.vector.infos import columns_of, kind_conflicts, merged


def merge(infos):
    return merged(columns_of(infos), len(infos))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((True, False), "bool"),
        ((3, 4), "int64"),
        ((0.5, 1.0), "float64"),
        ((np.float32(1), np.float32(2)), "float32"),
        (("a", "b"), "object"),
        ((("a", "b"), ()), "object"),
        (([1], [2, 3]), "object"),
    ],
)
def test_values_keep_their_type_and_nobody_without_gets_one(values, dtype):
    infos = merge([{"key": values[0]}, {}, {"key": values[1]}])
    nothing = None if dtype == "object" else 0
    assert infos["key"].dtype == dtype
    assert infos["key"].tolist() == [values[0], nothing, values[1]]
    assert infos["_key"].tolist() == [True, False, True]


def test_arrays_are_stacked():
    infos = merge([{"at": np.array([1, 2])}, {}, {"at": np.array([3, 4])}])
    assert infos["at"].tolist() == [[1, 2], [0, 0], [3, 4]]


def test_infos_in_infos_are_merged_likewise():
    infos = merge([{}, {"episode": {"r": 1.0, "l": 3}}])
    assert infos["episode"]["r"].tolist() == [0.0, 1.0]
    assert infos["episode"]["_l"].tolist() == [False, True]
    assert infos["_episode"].tolist() == [False, True]


def test_it_is_what_gymnasium_makes_of_them():
    rows = [{"a": 1, "b": "x", "c": {"d": 0.5}}, {"b": "y"}, {"c": {"e": True}, "f": np.eye(2)}]
    vector, theirs = VectorEnv(), {}
    vector.num_envs = 3
    for place, row in enumerate(rows):
        theirs = vector._add_info(theirs, row, place)
    assert repr(sorted(merge(rows).items())) == repr(sorted(theirs.items()))


def test_no_infos_make_an_empty_one():
    assert merge([{}, {}]) == {}


def test_conflicts_are_found_at_once_and_later():
    kinds = {}
    assert kind_conflicts(kinds, columns_of([{"a": 1}, {"a": 2, "b": "x"}])) == {}
    assert kind_conflicts(kinds, columns_of([{"b": "y"}, {"a": True}])) == {
        1: "info['a'] is True, of bool, and was of int before"
    }
    assert kind_conflicts({}, columns_of([{"a": 1}, {}, {"a": 0.5}])) == {
        2: "info['a'] is 0.5, of float, and was of int before"
    }


def test_arrays_of_another_shape_conflict():
    found = kind_conflicts({}, columns_of([{"a": np.zeros(2)}, {"a": np.zeros(3)}]))
    assert found == {
        1: "info['a'] is array([0., 0., 0.]), of ('array', '<f8', (3,)), and was of "
        "('array', '<f8', (2,)) before"
    }
