"""Minesweeper: open all cells without a mine, on boards that need no guess."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain, combinations, product

import numpy as np

from ludic_gym.envs.core.base import checked_range
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv

# A set of cells: bit i for cell i, row by row.
Cells = int
# Closed cells, and the number of mines among them.
Clue = tuple[Cells, int]
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
    """

    reply_form = "the column letter and the row number of a closed cell, such as A1"
    prompt = (
        "Open every cell without a mine. An open cell shows how many of its up to eight "
        "neighbours hold mines; # is a closed cell. If you open a mine you lose. Reply with just "
        f"{reply_form}."
    )

    def __init__(
        self, size: int = 6, mines: int = 5, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        # A turn for each cell: only illegal actions can use them up.
        super().__init__(checked_range("size", size, 3, 16) ** 2, render_mode, split=split)
        self._size, self._count = size, mines
        self._full = (1 << size * size) - 1
        checked_range("mines", mines, 1, size * size // MOST_CELLS_PER_MINE)

    def deal(self, rng: np.random.Generator) -> None:
        """Draw boards until one can be won by logic alone."""
        size, count = self._size, self._count
        cells, region = size * size, 0
        while not region:
            self.mines = sum(1 << int(cell) for cell in rng.permutation(cells)[:count])
            region = fair_start(size, self.mines)
        self._open = 0
        self._zeros = zeros(self._size, self.mines)
        self._shown = ["#"] * self._size**2
        self._show(region)

    def _show(self, cells: Cells) -> None:
        """Open the cells."""
        around, mines = neighbours(self._size), self.mines
        for i in members(cells & ~self._open):
            is_mine = mines >> i & 1
            self._shown[i] = "*" if is_mine else str((around[i] & mines).bit_count())
        self._open |= cells

    def game(self) -> str:
        """The places of the mines."""
        return f"{self._size} {self.mines}"

    def move(self, action: str) -> Outcome:
        """Open a cell and its region."""
        cell = names_of_cells(self._size).get(action.upper())
        if cell is None or self._open >> cell & 1:
            return "illegal"
        self._show(regions(self._size, self._zeros, 1 << cell))
        if self.mines >> cell & 1:
            return "loss"
        return "win" if self._open | self.mines == self._full else ""

    def view(self) -> str:
        """The board with its rows and columns named."""
        return f"{template(self._size) % tuple(self._shown)}\nMines: {self._count}"

    def allowed_actions(self) -> tuple[str, ...]:
        """Names of the closed cells."""
        names = names_of_cells(self._size).items()
        return tuple(name for name, i in names if not self._open >> i & 1)

    def best_action(self) -> str:
        """A cell that is proven safe."""
        shown = numbers(self._size, self.mines, self._open & ~self.mines)
        safe = safe_cells(clues_of(shown, self._full & ~self._open))
        return next(name for name, i in names_of_cells(self._size).items() if safe >> i & 1)


def fair_start(size: int, mines: Cells) -> Cells:
    """The cells that are open at the start of a fair board; none if logic alone cannot win it."""
    clear, full = zeros(size, mines), (1 << size * size) - 1
    # Without a zero, the game would begin without a clue.
    start = fresh = opened = regions(size, clear, clear & -clear) if clear else 0
    # A board that is won by its first region would be no game.
    if not start or opened | mines == full:
        return 0
    clues: list[Clue] = []
    while opened | mines != full:
        clues += numbers(size, mines, fresh)
        safe = safe_cells(clues_of(clues, full & ~opened))
        if not safe:
            return 0
        fresh = regions(size, clear, safe) & ~opened
        opened |= fresh
    return start


def zeros(size: int, mines: Cells) -> Cells:
    """The cells without a mine in or beside them."""
    around, beside = neighbours(size), mines
    for i in members(mines):
        beside |= around[i]
    return ((1 << size * size) - 1) & ~beside


def regions(size: int, clear: Cells, starts: Cells) -> Cells:
    """The cells that open with the starts: those connected to them by zeros (flood fill)."""
    around, opened, fresh = neighbours(size), starts, starts & clear
    # Each zero spreads once: these have, or wait to.
    spread = fresh
    while fresh:
        opened |= around[fresh.bit_length() - 1]
        fresh = opened & clear & ~spread | fresh & ~(1 << fresh.bit_length() - 1)
        spread |= fresh
    return opened


def numbers(size: int, mines: Cells, cells: Cells) -> list[Clue]:
    """The neighbours of each of the cells, and the number of mines among them."""
    around = neighbours(size)
    return [(around[i], (around[i] & mines).bit_count()) for i in members(cells)]


def clues_of(clues: Iterable[Clue], closed: Cells) -> set[Clue]:
    """The clues about closed cells; a clue without any is left out."""
    return {(cells & closed, count) for cells, count in clues if cells & closed}


def safe_cells(clues: Iterable[Clue]) -> Cells:
    """Cells that the clues prove to be safe.

    If the cells of one clue are a subset of another's, their difference is a clue too. Such clues
    are added until no new one follows.
    """
    compared, fresh = set[Clue](), set(clues)
    while fresh:
        # Two known clues were compared before: only pairs with a fresh one can give a new one.
        differences = set()
        for (a, in_a), (b, in_b) in chain(product(fresh, compared), combinations(fresh, 2)):
            both = a & b
            if both == a:
                differences.add((b ^ a, in_b - in_a))
            elif both == b:
                differences.add((a ^ b, in_a - in_b))
        compared |= fresh
        fresh = differences - compared
    safe = 0
    for cells, count in compared:
        safe |= 0 if count else cells
    return safe


def members(cells: Cells) -> list[int]:
    """The cells, the last one first."""
    indices = []
    while cells:
        indices.append(cells.bit_length() - 1)
        cells ^= 1 << indices[-1]
    return indices


@cache
def neighbours(size: int) -> tuple[Cells, ...]:
    """The up to eight cells around each cell."""
    return tuple(
        sum(
            1 << v * size + u
            for v in range(max(y - 1, 0), min(y + 2, size))
            for u in range(max(x - 1, 0), min(x + 2, size))
            if (u, v) != (x, y)
        )
        for y in range(size)
        for x in range(size)
    )


@cache
def template(size: int) -> str:
    """The board with the names of its columns and rows, and %s for each cell."""
    margin = len(str(size))
    head = " " * (margin + 1) + " ".join(map(column, range(size)))
    cells = " ".join(["%s"] * size)
    return "\n".join([head, *(f"{y + 1:>{margin}} {cells}" for y in range(size))])


def column(x: int) -> str:
    """The letter of a column: A for 0, B for 1, ..."""
    return chr(ord("A") + x)


@cache
def names_of_cells(size: int) -> dict[str, int]:
    """Cells by name, "A1", "B1", ..., row by row."""
    return {f"{column(i % size)}{i // size + 1}": i for i in range(size * size)}
