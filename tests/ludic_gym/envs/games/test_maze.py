import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.grids import carve_maze

ID = "ludic/Maze-v0"


def corridor():
    """Two cells a side, with the way through the upper right one."""
    env = gym.make(ID, size=2)
    env.reset(seed=0)
    env.unwrapped._floor = frozenset({(1, 1), (1, 2), (1, 3), (2, 3), (3, 3)})
    return env


def test_a_walk_step_by_step():
    env = corridor()
    assert env.step("right")[0] == "#####\n# @ #\n### #\n###G#\n#####"
    for move in ("Right", "down"):
        assert env.step(move)[1:3] == (0.0, False)
    assert env.step("down")[1:3] == (1.0, True)


@pytest.mark.parametrize("action", ["up", "left", "down", "", "go right", "r"])
def test_walls_and_other_words_are_illegal(action):
    env = corridor()
    assert env.unwrapped.legal_actions() == ("right",)
    assert env.step(action)[4]["illegal"]


@pytest.mark.parametrize("size", [2, 3, 7, 30])
def test_a_maze_is_a_tree_of_all_its_cells(size):
    floor = carve_maze(size, np.random.default_rng(size))
    # A tree of n cells has n - 1 gaps between them.
    assert len(floor) == 2 * size**2 - 1
    assert {(y, x) for y, x in floor if y % 2 and x % 2} == {
        (2 * i + 1, 2 * j + 1) for i in range(size) for j in range(size)
    }


def test_the_oracle_takes_the_shortest_path():
    env = corridor().unwrapped
    moves = []
    while env.legal_actions():
        moves.append(env.oracle_action())
        env.step(moves[-1])
    assert moves == ["right", "right", "down", "down"]


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 6, pytest.param(12, marks=pytest.mark.slow)])
def test_the_turns_are_enough_for_every_maze(size):
    env = gym.make(ID, size=size).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        assert reward == 1.0
