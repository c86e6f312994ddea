import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.connect_four import (
    best_actions,
    has_four,
    legal_actions,
    mover,
    observation,
    play,
    returns,
)
from ludic_gym.errors import ConfigError

ID = "ludic/ConnectFour-v0"


def after(columns):
    state = (0, 0)
    for column in columns:
        state = play(state, column)
    return state


def test_discs_fall_to_the_lowest_free_cell():
    assert observation(after("4453"), 0).splitlines()[-3:] == [
        ". . . O . . .",
        ". . O X X . .",
        "1 2 3 4 5 6 7",
    ]
    assert mover(after("4453")) == 0
    assert mover(after("44533")) == 1


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("", None),
        ("1122334", (1.0, -1.0)),
        ("1212121", (1.0, -1.0)),
        ("12121242", (-1.0, 1.0)),
        # X climbs to the right over 1, 2, 3 and 4; and the same to the left.
        ("12233434474", (1.0, -1.0)),
        ("76655454414", (1.0, -1.0)),
        ("121314", None),
    ],
)
def test_four_in_a_line_win(columns, expected):
    assert returns(after(columns)) == expected


def test_lines_do_not_wrap_around_the_columns():
    # Rows 3 to 5 of the first column and row 0 of the second.
    assert not has_four(0b111000 | 1 << 7)
    assert has_four(0b111100)


def test_a_full_column_is_not_legal():
    assert legal_actions(after("111111")) == ("2", "3", "4", "5", "6", "7")


def test_the_search_wins_at_once_and_stops_a_win():
    # X has 2, 3 and 4 in the lowest row: X wins at 1 or 5, O cannot stop both.
    assert set(best_actions(after("223344"))) == {"1", "5"}
    # X has 1, 2 and 3 with O to move: only 4 stops it.
    assert best_actions(after("11223")) == ("4",)


def test_the_opponent_may_search():
    env = gym.make(ID, opponent="search").unwrapped
    env.reset(seed=0)
    over = False
    while not over:
        _, reward, over, _, info = env.step(env.legal_actions()[0])
    assert (reward, info["outcome"]) == (-1.0, "loss")
    with pytest.raises(ConfigError, match="random, search, mixed, got 'perfect'"):
        gym.make(ID, opponent="perfect")
