"""Sudoku: fill a grid that has exactly one solution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from math import isqrt
from operator import eq
from typing import Any

import numpy as np

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import checked_range
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv, rows_if_given
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.graders.extract import Grade, extract

FREE = "."
# Side of the grid -> lowest and highest number of clues.
CLUES = {4: (4, 15), 9: (24, 80)}
USUAL_CLUES = {4: 8, 9: 40}


def grade_grid(text: str, truth: str) -> Grade:
    """Grade a grid: its cells must be those of `truth`.

    White space, the lines | - +, Markdown, the brackets and commas of a list and a last full stop
    are ignored.
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    return Grade(_cells(answer).rstrip(".") == _cells(truth), answer, rule)


def _cells(text: str) -> str:
    return "".join(character for character in text if character not in " \t\n\r|-+*`[],")


class SudokuEnv(QuestionEnv):
    """Fill the grid so that each row, column and box has each number once.

    - Observation: the grid, . for a free cell.
    - Action: the whole grid in <answer></answer> tags.
    - Reward and info: see `QuestionEnv`.

    Args:
        size: side of the grid, 9 or 4.
        clues: number of given numbers; 0 for 40 of 81, or 8 of 16. There are more if the solution
            would not be unique otherwise.
        split: part of the generated tasks; with `data`, the split of a folder or a data set.
        data: rows in place of generated tasks: a file, a folder with a file per split, or a hub id.
        fields: columns of "puzzle" and its only "solution" (81 or 16 characters, 0 or . for a free
            cell) of another layout: see `load_rows`. on_bad_row: "skip" leaves out other rows.
    """

    grade = grade_grid

    def __init__(
        self,
        size: int = 9,
        clues: int = 0,
        render_mode: str | None = None,
        *,
        split: Split = "all",
        data: str | None = None,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
    ) -> None:
        rows = rows_if_given(
            data, task_of, kind="sudoku", split=split, fields=fields, on_bad_row=on_bad_row
        )
        super().__init__(render_mode, split=split, rows=rows)
        if size not in CLUES:
            raise ConfigError(f"size is one of {sorted(CLUES)}, got {size!r}")
        if clues:
            checked_range("clues", clues, *CLUES[size])
        self._size, self._clues = size, clues or USUAL_CLUES[size]
        self.prompt = prompt_of(size)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The grid of a row; or draw a full grid, and remove numbers in random order."""
        if self.origin is not None:
            puzzle = self.row_question(options)
            self.prompt = prompt_of(len(puzzle.text.splitlines()))
            return puzzle
        solved = full_grid(self._size, self.np_random)
        order = [int(i) for i in self.np_random.permutation(self._size**2)]
        return Question(as_text(remove_clues(solved, order, self._clues)), as_text(solved))

    def task(self, question: Question) -> str:
        """The solution."""
        return question.truth


def prompt_of(size: int) -> str:
    """The task for grids of a side."""
    box = isqrt(size)
    return (
        f"Fill the free cells (.) so that every row, column and {box} by {box} box has every "
        f"number from 1 to {size} once. Give the whole grid, one row per line, between "
        "<answer> and </answer>."
    )


def task_of(row: Row) -> Question:
    """The grid of a row. Raises DataError unless the solution is a full grid of the puzzle."""
    puzzle, solved = (
        _cells(text_field(row, name)).replace("0", FREE) for name in ("puzzle", "solution")
    )
    size = isqrt(len(solved))
    fits = len(puzzle) == len(solved) == size**2 and size in CLUES
    # That there is no other solution is not tested: it takes milliseconds a row.
    if not fits or not all(
        clue in (number, FREE)
        and number in "123456789"[:size]
        and number not in {solved[j] for j in peers(size)[i]}
        for i, (clue, number) in enumerate(zip(puzzle, solved, strict=True))
    ):
        raise DataError(f"{row.where}: no grid with its solution: {puzzle!r:.90}, {solved!r:.90}")
    return Question(as_text(puzzle), as_text(solved))


def as_text(grid: str) -> str:
    """The grid with one line per row."""
    size = isqrt(len(grid))
    return "\n".join(" ".join(grid[i : i + size]) for i in range(0, len(grid), size))


def full_grid(size: int, rng: np.random.Generator) -> str:
    """A full grid: a regular one with its numbers, and rows and columns within bands, permuted."""
    box = isqrt(size)

    def order() -> list[int]:
        bands = rng.permutation(box)
        return [int(band) * box + int(i) for band in bands for i in rng.permutation(box)]

    rows, columns, numbers = order(), order(), rng.permutation(size)
    # In the regular grid each row is the one above moved by a box, and by one more at each band, so
    # that no number comes twice in a column or a box.
    return "".join(
        str(int(numbers[(y % box * box + y // box + x) % size]) + 1) for y in rows for x in columns
    )


def remove_clues(grid: str, order: list[int], clues: int) -> str:
    """The grid without the cells, taken in that order, that leave the solution unique.

    clues: number of cells at which to stop.
    """
    # One pass is enough: a clue that is needed now stays needed when there are fewer others.
    count = len(grid)
    for i in order:
        if count == clues:
            break
        fewer = grid[:i] + FREE + grid[i + 1 :]
        if is_unique(fewer):
            grid, count = fewer, count - 1
    return grid


def is_unique(grid: str) -> bool:
    """True if there is exactly one solution."""
    # Two solutions are enough to know that it is not unique.
    return len(list(islice(solutions(grid), 2))) == 1


def solutions(grid: str) -> Iterator[str]:
    """All solutions: backtracking on the free cell with the fewest choices."""
    cell, choices = -1, ""
    for i, character in enumerate(grid):
        if character != FREE:
            continue
        seen = {grid[j] for j in peers(isqrt(len(grid)))[i]}
        left = "".join(n for n in "123456789"[: isqrt(len(grid))] if n not in seen)
        if cell < 0 or len(left) < len(choices):
            cell, choices = i, left
        # Such a cell is taken at once: no choice is a contradiction, one is forced.
        if len(choices) < 2:
            break
    if cell < 0:
        yield grid
    for number in choices:
        yield from solutions(grid[:cell] + number + grid[cell + 1 :])


@cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """The cells that share a row, column or box with each cell."""
    box, cells = isqrt(size), range(size * size)

    def units(i: int) -> tuple[int, int, tuple[int, int]]:
        y, x = divmod(i, size)
        return y, x, (y // box, x // box)

    return tuple(
        tuple(j for j in cells if j != i and any(map(eq, units(i), units(j)))) for i in cells
    )
