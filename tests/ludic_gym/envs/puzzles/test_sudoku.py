import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.puzzles.sudoku import (
    as_text,
    full_grid,
    grade_grid,
    is_unique,
    peers,
    solutions,
)
from ludic_gym.errors import DataError, SkippedRowsWarning

ID = "ludic/Sudoku-v0"
SOLVED = "1234341221434321"
TRUTH = as_text(SOLVED)


def test_cells_see_their_row_column_and_box():
    assert peers(4)[0] == (1, 2, 3, 4, 5, 8, 12)
    assert {len(cells) for cells in peers(9)} == {20}


def test_all_solutions_are_found():
    assert list(solutions("1.34.4.22.4.43.1")) == [SOLVED]
    assert list(solutions("..34341221434321")) == [SOLVED]
    assert not is_unique("." * 16)
    assert list(solutions("11" + "." * 14)) == []


def test_there_are_288_grids_of_four():
    assert len(list(solutions("." * 16))) == 288


@pytest.mark.parametrize("size", [4, 9])
def test_a_full_grid_has_every_number_once_per_unit(size):
    for seed in range(10):
        grid = full_grid(size, np.random.default_rng(seed))
        assert all(grid[i] != grid[j] for i, cells in enumerate(peers(size)) for j in cells)


@pytest.mark.parametrize(
    ("kwargs", "clues"), [({}, 40), ({"size": 4}, 8), ({"size": 9, "clues": 60}, 60)]
)
def test_every_puzzle_has_one_solution_and_its_clues(kwargs, clues):
    env = gym.make(ID, **kwargs)
    for seed in range(5):
        text, _ = env.reset(seed=seed)
        grid = "".join(text.split())
        assert len(grid) - grid.count(".") == clues
        assert as_text(next(solutions(grid))) == env.unwrapped.oracle_action()
        assert is_unique(grid)


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        (TRUTH, True),
        (f"<answer>{SOLVED}</answer>", True),
        ("<answer>\n1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1\n</answer>", True),
        ("<answer>[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]</answer>", True),
        (f"<answer>{SOLVED[:-1]}2</answer>", False),
        (f"<answer>{SOLVED}1</answer>", False),
        ("<answer>1.34.4.22.4.43.1</answer>", False),
        (f"the grid is {SOLVED}", False),
        ("", False),
    ],
)
def test_the_whole_grid_must_be_right(text, correct):
    assert grade_grid(text, TRUTH).correct is correct


@pytest.mark.parametrize(
    ("puzzle", "solution"),
    [
        ("2" + SOLVED[1:], SOLVED),
        (SOLVED[:15], SOLVED),
        ("." * 16, SOLVED[:-1] + "2"),
        ("." * 16, "1" * 16),
        ("." * 16, SOLVED.replace("4", "5")),
        ("12", "12"),
    ],
)
def test_a_row_without_a_grid_and_its_solution_is_a_bad_one(puzzle, solution, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"puzzle,solution\n{SOLVED.replace('4', '.')},{SOLVED}\n{puzzle},{solution}\n")
    fields = {"puzzle": "puzzle", "solution": "solution"}
    with pytest.raises(DataError, match=r"1 of 2 rows cannot be used: .*row 1: no"):
        gym.make(ID, data=str(path), fields=fields)
    with pytest.warns(SkippedRowsWarning):
        env = gym.make(ID, data=str(path), fields=fields, on_bad_row="skip")
    text, info = env.reset()
    assert "2 by 2 box has every number from 1 to 4" in info["system_prompt"]
    assert text.splitlines()[0] == "1 2 3 ."
    assert env.step(env.unwrapped.oracle_action())[1] == 1.0
