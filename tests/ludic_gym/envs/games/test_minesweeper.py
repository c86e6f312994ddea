import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.minesweeper import names_of_cells, neighbours, safe_cells
from ludic_gym.errors import ConfigError

ID = "ludic/Minesweeper-v0"


def corner():
    """3 by 3 cells, a mine in C2, the left two columns open."""
    env = gym.make(ID, size=3, mines=1)
    env.reset(seed=0)
    env.unwrapped._mines = frozenset({5})
    env.unwrapped._open = frozenset({0, 1, 3, 4, 6, 7})
    return env


def clue(cells, count):
    return frozenset(cells), count


def test_a_corner_has_three_neighbours_and_the_centre_eight():
    assert [len(cells) for cells in neighbours(3)] == [3, 5, 3, 5, 8, 5, 3, 5, 3]
    assert neighbours(3)[0] == {1, 3, 4}


def test_the_board_shows_numbers_and_closed_cells():
    assert corner().unwrapped.view() == "  A B C\n1 0 1 #\n2 0 1 #\n3 0 1 #\nMines: 1"


def test_opening_all_safe_cells_wins():
    env = corner()
    text, reward, terminated, _, info = env.step("c1")
    assert (text.splitlines()[1], reward, terminated) == ("1 0 1 1", 0.0, False)
    _, reward, terminated, _, info = env.step("C3")
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


def test_opening_a_mine_loses_and_shows_it():
    text, reward, terminated, _, info = corner().step("C2")
    assert (text.splitlines()[2], reward, terminated) == ("2 0 1 *", 0.0, True)
    assert info["outcome"] == "loss"


@pytest.mark.parametrize("action", ["A1", "D1", "C4", "C", "", "C1 C3", "1C"])
def test_only_closed_cells_are_legal(action):
    env = corner()
    assert env.unwrapped.legal_actions() == ("C1", "C2", "C3")
    assert env.step(action)[4]["illegal"]


def test_zeros_open_all_that_is_connected():
    env = corner().unwrapped
    env._open = frozenset()
    assert env._region(0) == {0, 1, 3, 4, 6, 7}
    assert env._region(1) == {1}


def test_clues_are_combined():
    # One mine in {1, 2}, one in {1, 2, 3}: so 3 is safe. Two in {4, 5} say nothing safe.
    assert safe_cells([clue({1, 2}, 1), clue({1, 2, 3}, 1), clue({4, 5}, 2)]) == {3}
    assert safe_cells([clue({1, 2}, 1)]) == frozenset()
    assert safe_cells([clue({1, 2}, 0)]) == {1, 2}


@pytest.mark.parametrize(("size", "mines"), [(3, 1), (6, 7), (9, 10)])
def test_every_board_is_won_by_logic(size, mines):
    env = gym.make(ID, size=size, mines=mines).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        assert len(env._mines) == mines
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        assert reward == 1.0


def test_cells_are_named_by_column_and_row():
    assert list(names_of_cells(3))[:4] == ["A1", "B1", "C1", "A2"]


@pytest.mark.parametrize("kwargs", [{"size": 2}, {"size": 17}, {"mines": 0}, {"mines": 8}])
def test_difficulties_that_do_not_exist_are_refused(kwargs):
    with pytest.raises(ConfigError):
        gym.make(ID, **kwargs)
