"""Maze and Sokoban."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.grids import carve_maze, pushes, solution
from ludic_gym.errors import NoOracle

ID = "ludic/Maze-v0"


def corridor():
    """Two cells a side, with the way through the upper right one."""
    env = gym.make(ID, size=2)
    env.reset(seed=0)
    env.unwrapped.floor = frozenset({(1, 1), (1, 2), (1, 3), (2, 3), (3, 3)})
    return env


def test_a_walk_step_by_step():
    env = corridor()
    assert env.step("right")[0] == "#####\n# @ #\n### #\n###G#\n#####"
    for move in ("Right", "down"):
        assert env.step(move)[1:3] == (0.0, False)
    assert env.step("down")[1:3] == (1.0, True)


@pytest.mark.parametrize("action", ["up", "left", "down", "", "go down", "r"])
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


SOKOBAN = "ludic/Sokoban-v0"
ROOM = frozenset((y, x) for y in (1, 2, 3) for x in (1, 2, 3))


def level(at, boxes, goals):
    env = gym.make(SOKOBAN, size=5, boxes=len(boxes))
    env.reset(seed=0)
    inside = env.unwrapped
    inside.floor, inside.at = ROOM, at
    inside.boxes, inside.goals = frozenset(boxes), frozenset(goals)
    return env


def test_one_push_solves_a_level():
    env = level((1, 1), [(1, 2)], [(1, 3)])
    assert env.unwrapped.view() == "#####\n#@$.#\n#   #\n#   #\n#####"
    text, reward, terminated, _, info = env.step("right")
    assert text == "#####\n# @*#\n#   #\n#   #\n#####"
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


def test_boxes_stop_at_walls_and_at_boxes():
    against_wall = dict(pushes(ROOM, ((1, 2), frozenset({(1, 3)}))))
    against_box = dict(pushes(ROOM, ((1, 1), frozenset({(1, 2), (1, 3)}))))
    assert sorted(against_wall) == ["down", "left"]
    assert sorted(against_box) == ["down"]


@pytest.mark.parametrize("action", ["left", "up", "", "push"])
def test_a_step_into_a_wall_is_illegal(action):
    env = level((1, 1), [(2, 2)], [(3, 3)])
    assert env.unwrapped.legal_actions() == ("down", "right")
    assert env.step(action)[4]["illegal"]


def test_the_solution_is_shortest():
    # Down and left of the box first, then one push up is impossible at the wall: push right.
    box, goal = frozenset({(2, 2)}), frozenset({(2, 3)})
    assert solution(ROOM, goal, (1, 1), box) == ("down", "right")


def test_a_box_in_a_corner_has_no_oracle():
    env = level((2, 2), [(1, 1)], [(2, 1)])
    with pytest.raises(NoOracle, match="stuck for good"):
        env.unwrapped.oracle_action()


@pytest.mark.long
@pytest.mark.parametrize(("size", "boxes"), [(5, 1), (6, 2), (7, 3)])
def test_every_level_can_be_solved_within_forty_steps_and_is_not_solved_yet(size, boxes):
    env = gym.make(SOKOBAN, size=size, boxes=boxes).unwrapped
    for seed in range(15):
        env.reset(seed=seed)
        assert len(env.boxes) == len(env.goals) == boxes
        assert not env.boxes & env.goals
        assert 1 <= len(solution(env.floor, env.goals, env.at, env.boxes)) <= 40
