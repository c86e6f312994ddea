import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.minesweeper import (
    fair_start,
    members,
    regions,
    safe_cells,
    zeros,
)

ID = "ludic/Minesweeper-v0"


def corner():
    """3 by 3 cells, a mine in C2, the left two columns open."""
    env = gym.make(ID, size=3, mines=1)
    board = "  A B C\n1 0 1 #\n2 0 1 #\n3 0 1 #\nMines: 1"
    # The mine may be in another cell of the column, or of another side.
    seeds = (s for s in range(500) if env.reset(seed=s)[0] == board and env.unwrapped.mines == 32)
    next(seeds)
    return env


def bits(cells):
    return sum(1 << i for i in cells)


def clue(cells, count):
    return bits(cells), count


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
    clear = zeros(3, bits({5}))
    assert clear == bits({0, 3, 6})
    assert regions(3, clear, bits({0})) == bits({0, 1, 3, 4, 6, 7})
    assert regions(3, clear, bits({1})) == bits({1})
    assert members(bits({0, 3, 6})) == [6, 3, 0]


def test_clues_are_combined():
    # One mine in {1, 2}, one in {1, 2, 3}: so 3 is safe. Two in {4, 5} say nothing safe.
    assert safe_cells([clue({1, 2}, 1), clue({1, 2, 3}, 1), clue({4, 5}, 2)]) == bits({3})
    assert safe_cells([clue({1, 2}, 1)]) == 0
    assert safe_cells([clue({1, 2}, 0)]) == bits({1, 2})


def plainly_safe(clues):
    """The conclusions in sets, all pairs again in every round."""
    known = set(clues)
    while True:
        more = {(b - a, n - m) for a, m in known for b, n in known if a < b}
        if more <= known:
            return frozenset().union(*(cells for cells, count in known if not count))
        known |= more


@given(
    st.sets(st.integers(0, 11), max_size=4).map(frozenset),
    st.lists(st.frozensets(st.integers(0, 11), min_size=1, max_size=6), max_size=7),
)
def test_conclusions_are_those_of_plain_sets(mines, seen):
    clues = {(cells, len(cells & mines)) for cells in seen}
    packed = {(bits(cells), count) for cells, count in clues}
    assert safe_cells(packed) == bits(plainly_safe(clues))


def test_boards_without_a_zero_and_boards_that_need_a_guess_are_not_fair():
    assert fair_start(3, bits({4})) == 0
    assert fair_start(3, bits({5})) == bits({0, 1, 3, 4, 6, 7})
    # Its first region is all but the mines.
    assert fair_start(4, bits({0, 1})) == 0
    # C1 and A2: by the clues, A1 and D1 could be mines instead of C1.
    assert fair_start(4, bits({2, 4})) == 0


def test_seeds_give_the_boards_of_before():
    # Drawn by the first version of this game, whose boards were sets of cells.
    boards = []
    for seed in range(6):
        env = gym.make(ID, size=5, mines=5).unwrapped
        env.reset(seed=seed)
        boards.append(sorted(members(env.mines)))
    assert boards == [
        [4, 9, 11, 12, 20],
        [2, 3, 5, 13, 24],
        [16, 17, 22, 23, 24],
        [2, 3, 9, 22, 23],
        [0, 2, 4, 10, 14],
        [2, 4, 10, 21, 22],
    ]


@pytest.mark.parametrize(("size", "mines"), [(3, 1), (6, 7), (9, 10)])
def test_every_board_is_won_by_logic(size, mines):
    env = gym.make(ID, size=size, mines=mines).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        assert env.mines.bit_count() == mines
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        assert reward == 1.0
