import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.game_2048 import slide_board, slide_row

ID = "ludic/Game2048-v0"
BOARD = ((2, 0, 2, 0), (2, 4, 0, 0), (0, 4, 8, 0), (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((0, 0, 2, 2), (4, 0, 0, 0)),
        ((2, 2, 2, 2), (4, 4, 0, 0)),
        # A tile that was just made does not merge again.
        ((4, 2, 2, 0), (4, 4, 0, 0)),
        ((2, 2, 2, 0), (4, 2, 0, 0)),
        ((2, 4, 2, 4), (2, 4, 2, 4)),
    ],
)
def test_tiles_slide_and_merge_once(row, expected):
    assert slide_row(row) == expected


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        ("left", ((4, 0, 0, 0), (2, 4, 0, 0), (4, 8, 0, 0), (0, 0, 0, 0))),
        ("right", ((0, 0, 0, 4), (0, 0, 2, 4), (0, 0, 4, 8), (0, 0, 0, 0))),
        ("up", ((4, 8, 2, 0), (0, 0, 8, 0), (0, 0, 0, 0), (0, 0, 0, 0))),
        ("down", ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 2, 0), (4, 8, 8, 0))),
    ],
)
def test_all_tiles_move_one_way(move, expected):
    assert slide_board(BOARD, move) == expected


def board(rows, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped.board = rows
    return env


def test_a_game_begins_with_two_tiles_and_every_move_adds_one():
    env = gym.make(ID)
    for seed in range(20):
        text, _ = env.reset(seed=seed)
        assert sorted(text.split())[:14] == ["0"] * 14
        assert set(text.split()) <= {"0", "2", "4"}
    env = board(BOARD)
    text = env.step("Left")[0]
    assert sum(map(int, text.split())) - sum(map(sum, BOARD)) in (2, 4)


def test_the_target_wins():
    env = board(((8, 8, 0, 0), *BOARD[1:]), target=16)
    text, reward, terminated, _, info = env.step("left")
    assert text.splitlines()[0] == "16 0 0 0"
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_a_board_on_which_nothing_moves_loses():
    # Left makes 4 of the twos; the new tile of 2 or 4 has no equal neighbour beside it.
    env = board(((2, 2, 8, 16), (8, 16, 32, 64), (16, 32, 64, 8), (32, 64, 8, 16)))
    text, reward, terminated, _, info = env.step("left")
    assert text.splitlines()[0] in ("4 8 16 2", "4 8 16 4")
    assert (reward, terminated, info["outcome"]) == (0.0, True, "loss")


@pytest.mark.parametrize("action", ["down", "right", "", "l", "left, up"])
def test_a_move_must_change_the_board(action):
    rows = ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 2, 4))
    env = board(rows)
    assert env.unwrapped.legal_actions() == ("left", "up")
    assert env.step(action)[4]["illegal"]
    assert env.unwrapped.board == rows
