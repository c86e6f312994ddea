"""Minesweeper: open all cells without a mine, on boards that need no guess."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

import numpy as np

from ludic_gym.envs.core.base import checked_range
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv
from ludic_gym.errors import ConfigError

Cells = frozenset[int]
MOST_CELLS_PER_MINE = 5


class MinesweeperEnv(SolitaireEnv):
    """Open all cells without a mine; opening a mine loses.

    The game begins with an open region and can be won from there by logic alone.

    - Observation: the board with # for a closed cell and, for an open one, the number of mines
      among its up to eight neighbours; the number of mines.
    - Action: column letter and row number of a closed cell, in either case.
    - Reward and info: see `SolitaireEnv`.

    Args:
        size: rows and columns.
        mines: number of mines, at most one in five cells.
        render_mode: "ansi", "html" or None.

    ```text
      A B C
    1 0 1 #
    2 0 1 #
    3 0 1 #
    Mines: 1
    > C1
      A B C
    1 0 1 1
    2 0 1 #
    3 0 1 #
    Mines: 1
    > C3                        (C2 is the mine: reward 1)
    ```
    """

    prompt = (
        "Open every cell without a mine. An open cell shows how many of its up to eight "
        "neighbours hold mines; # is closed. Opening a mine loses. Reply with just the column "
        "letter and the row number of a closed cell, such as A1."
    )

    def __init__(self, size: int = 6, mines: int = 5, render_mode: str | None = None) -> None:
        # A turn for each cell: only illegal actions can use them up.
        super().__init__(checked_range("size", size, 3, 16) ** 2, render_mode)
        self._size, self._count = size, mines
        if not 1 <= mines <= size * size // MOST_CELLS_PER_MINE:
            raise ConfigError(
                f"mines is from 1 to {size * size // MOST_CELLS_PER_MINE} for size={size}, "
                f"got {mines!r}"
            )

    def deal(self, rng: np.random.Generator) -> None:
        """Draw boards until one can be won by logic alone."""
        self._open: Cells = frozenset()
        cells = self._size**2
        while True:
            self._mines = frozenset(int(i) for i in rng.permutation(cells)[: self._count])
            # A cell with a zero opens its neighbours too, so that the game begins with clues.
            start = next((i for i in range(cells) if self._number(i) == 0), None)
            if start is None:
                continue
            region = self._region(start)
            # A board that is won by its first region would be no game.
            if len(region) + self._count < cells and self._is_fair(region):
                break
        self._open = region

    def _is_fair(self, opened: Cells) -> bool:
        """True if logic alone leads from these open cells to the end."""
        while len(opened) + self._count < self._size**2:
            safe = self._safe(opened)
            if not safe:
                return False
            opened = opened.union(*(self._region(i) for i in safe))
        return True

    def _number(self, i: int) -> int:
        """Number of mines among the neighbours; -1 for a mine."""
        # A mine has no number, and -1 keeps it from being taken for a zero.
        return -1 if i in self._mines else len(neighbours(self._size)[i] & self._mines)

    def _region(self, start: int) -> Cells:
        """The cells that open with a cell: those connected to it by zeros (flood fill)."""
        found, fresh = {start}, [start]
        while fresh:
            i = fresh.pop()
            if self._number(i) == 0:
                fresh += [j for j in neighbours(self._size)[i] if j not in found]
                found |= neighbours(self._size)[i]
        return frozenset(found)

    def _safe(self, opened: Cells) -> Cells:
        """Closed cells that the open ones prove to be safe."""
        # Cells whose neighbours are all open say nothing about closed ones.
        clues = {
            (neighbours(self._size)[i] - opened, self._number(i))
            for i in opened
            if not neighbours(self._size)[i] <= opened
        }
        return safe_cells(clues)

    def move(self, action: str) -> Outcome:
        """Open a cell and its region."""
        names = names_of_cells(self._size)
        cell = names.get(action.upper())
        if cell is None or cell in self._open:
            return "illegal"
        self._open |= self._region(cell)
        if cell in self._mines:
            return "loss"
        return "win" if len(self._open) + self._count == self._size**2 else ""

    def view(self) -> str:
        """The board with its rows and columns named."""
        letters = " ".join(column(x) for x in range(self._size))
        margin = len(str(self._size))
        lines = [" " * (margin + 1) + letters]
        for y in range(self._size):
            row = range(y * self._size, (y + 1) * self._size)
            lines.append(f"{y + 1:>{margin}} " + " ".join(self._symbol(i) for i in row))
        return "\n".join([*lines, f"Mines: {self._count}"])

    def _symbol(self, i: int) -> str:
        if i not in self._open:
            return "#"
        return "*" if i in self._mines else str(self._number(i))

    def allowed_actions(self) -> tuple[str, ...]:
        """Names of the closed cells."""
        return tuple(n for n, i in names_of_cells(self._size).items() if i not in self._open)

    def best_action(self) -> str:
        """A cell that is proven safe."""
        safe = self._safe(self._open)
        return next(n for n, i in names_of_cells(self._size).items() if i in safe)


def safe_cells(clues: Iterable[tuple[Cells, int]]) -> Cells:
    """Cells that the clues prove to be safe.

    clues: sets of cells, each with its number of mines.
    If the cells of one clue are a subset of another's, their difference is a clue too. Such clues
    are added until no new one follows.
    """
    known, fresh = set(clues), set(clues)
    while fresh:
        # Two known clues were compared before: only pairs with a fresh one can give a new one.
        pairs = (pair for a, b in product(known, fresh) for pair in ((a, b), (b, a)))
        fresh = {
            (whole - part, in_whole - in_part)
            for (part, in_part), (whole, in_whole) in pairs
            if part < whole
        } - known
        known |= fresh
    return frozenset(i for cells, count in known if count == 0 for i in cells)


@cache
def neighbours(size: int) -> tuple[Cells, ...]:
    """The up to eight cells around each cell."""
    return tuple(
        frozenset(
            v * size + u
            for v in range(max(y - 1, 0), min(y + 2, size))
            for u in range(max(x - 1, 0), min(x + 2, size))
            if (u, v) != (x, y)
        )
        for y in range(size)
        for x in range(size)
    )


def column(x: int) -> str:
    """The letter of a column: A for 0, B for 1, ..."""
    return chr(ord("A") + x)


@cache
def names_of_cells(size: int) -> dict[str, int]:
    """Cells by name, "A1", "B1", ..., row by row."""
    return {f"{column(i % size)}{i // size + 1}": i for i in range(size * size)}
