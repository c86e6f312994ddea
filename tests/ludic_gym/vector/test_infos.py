import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from ludic_gym.vector import kind_conflicts, merge_infos


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
    infos, _ = merge_infos([{"key": values[0]}, {}, {"key": values[1]}])
    nothing = None if dtype == "object" else 0
    assert infos["key"].dtype == dtype
    assert infos["key"].tolist() == [values[0], nothing, values[1]]
    assert infos["_key"].tolist() == [True, False, True]


def test_arrays_are_stacked():
    infos, _ = merge_infos([{"at": np.array([1, 2])}, {}, {"at": np.array([3, 4])}])
    assert infos["at"].tolist() == [[1, 2], [0, 0], [3, 4]]


def test_infos_in_infos_are_merged_likewise():
    infos, _ = merge_infos([{}, {"episode": {"r": 1.0, "l": 3}}])
    assert infos["episode"]["r"].tolist() == [0.0, 1.0]
    assert infos["episode"]["_l"].tolist() == [False, True]
    assert infos["_episode"].tolist() == [False, True]


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": 1, "b": "x", "c": {"d": 0.5}}, {"b": "y"}, {"c": {"e": True}, "f": np.eye(2)}],
        [{"final_obs": np.ones(2), "final_info": {"a": 1}}, {}, {"final_obs": np.zeros(2)}],
        [{}, {"final_obs": 3}, {}],
        [{"final_obs": {"at": np.ones(2)}}, {"final_obs": {"at": np.zeros(2)}}, {}],
    ],
)
def test_it_is_what_gymnasium_makes_of_them(rows):
    vector, theirs = VectorEnv(), {}
    vector.num_envs = 3
    for place, row in enumerate(rows):
        theirs = vector._add_info(theirs, row, place)
    assert repr(merge_infos(rows)[0]) == repr(theirs)


def test_no_infos_make_an_empty_one():
    assert merge_infos([{}, {}]) == ({}, {})


def test_conflicts_are_found_at_once_and_later():
    kinds = {}
    assert kind_conflicts(kinds, [{"a": 1}, {"a": 2, "b": "x"}]) == {}
    assert kind_conflicts(kinds, [{"b": "y"}, {"a": True}]) == {
        1: "info['a'] is True, of bool, and was of int before"
    }
    assert kind_conflicts({}, [{"a": 1}, {}, {"a": 0.5}]) == {
        2: "info['a'] is 0.5, of float, and was of int before"
    }


def test_infos_with_conflicts_are_not_merged():
    kinds = {}
    assert merge_infos([{}, {"a": 1, "b": np.zeros(2)}], kinds)[1] == {}
    assert merge_infos([{"a": "x"}, {"a": 2}, {"c": 1, "b": np.zeros(3)}], kinds) == (
        {},
        {
            0: "info['a'] is 'x', of str, and was of int before",
            2: "info['b'] is array([0., 0., 0.]), of ('array', '<f8', (3,)), and was of "
            "('array', '<f8', (2,)) before",
        },
    )


def test_arrays_of_another_shape_conflict():
    found = kind_conflicts({}, [{"a": np.zeros(2)}, {"a": np.zeros(3)}])
    assert found == {
        1: "info['a'] is array([0., 0., 0.]), of ('array', '<f8', (3,)), and was of "
        "('array', '<f8', (2,)) before"
    }
