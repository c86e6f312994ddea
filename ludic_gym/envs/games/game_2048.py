"""2048: slide and merge tiles until one is large enough (G. Cirulli, 2014)."""

from __future__ import annotations

from functools import cache

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv
from ludic_gym.errors import ConfigError

SIDE = 4
TARGETS = (16, 32, 64, 128, 256, 512, 1024, 2048)
FOUR_CHANCE = 0.1
Board = tuple[tuple[int, ...], ...]
# Large tiles in one corner and falling from there keep the board tidy.
WEIGHTS = ((15, 14, 13, 12), (8, 9, 10, 11), (7, 6, 5, 4), (0, 1, 2, 3))
EMPTY_WORTH = 16


class Game2048Env(SolitaireEnv):
    """Slide and merge tiles until one of them is the target.

    After a move, a 2 (probability 0.9) or a 4 appears on a free cell. A board without a legal move
    loses.

    - Observation: the board, 0 for a free cell.
    - Action: up, down, left or right; legal if it moves a tile.
    - Reward and info: see `SolitaireEnv`.

    Args:
        target: the tile that wins, a power of two from 16 to 2048.
    """

    def __init__(
        self, target: int = 256, split: Split = "all", render_mode: str | None = None
    ) -> None:
        if target not in TARGETS:
            raise ConfigError(f"target is one of {TARGETS}, got {target!r}")
        # A move adds 2.2 to the sum of the tiles on average, so legal play ends before that.
        super().__init__(4 * target, render_mode, split=split)
        self._target = target
        self.prompt = (
            "Slide the tiles of the board; equal tiles that meet merge into their sum, and a 2 or "
            f"a 4 appears on a free cell (0). Make a tile of {self._target}. Reply with just up, "
            "down, left or right; the move must change the board."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Put two tiles on an empty board."""
        self.board: Board = ((0,) * SIDE,) * SIDE
        self._add_tile(rng)
        self._add_tile(rng)

    def _add_tile(self, rng: np.random.Generator) -> None:
        free = [(y, x) for y, row in enumerate(self.board) for x, n in enumerate(row) if not n]
        at = pick(rng, free)
        tile = 4 if rng.random() < FOUR_CHANCE else 2
        self.board = tuple(
            tuple(tile if (y, x) == at else n for x, n in enumerate(row))
            for y, row in enumerate(self.board)
        )

    def move(self, action: str) -> Outcome:
        """Slide the tiles, then add one."""
        move = action.lower()
        if move not in self.allowed_actions():
            return "illegal"
        self.board = slide_board(self.board, move)
        # Before a tile is added: the win must not depend on a further draw.
        if max(map(max, self.board)) >= self._target:
            return "win"
        self._add_tile(self.np_random)
        return "" if self.allowed_actions() else "loss"

    def view(self) -> str:
        """The board, a line per row."""
        return "\n".join(" ".join(map(str, row)) for row in self.board)

    def allowed_actions(self) -> tuple[str, ...]:
        """Directions in which a tile moves."""
        return tuple(move for move in MOVES if slide_board(self.board, move) != self.board)

    def best_action(self) -> str:
        """The first of two moves that lead to the best board, if no tile appeared in between."""

        def prospect(move: str) -> int:
            board = slide_board(self.board, move)
            return worth(board) + max(worth(slide_board(board, after)) for after in MOVES)

        return max(self.allowed_actions(), key=prospect)


MOVES = ("left", "up", "right", "down")


def slide_board(board: Board, move: str) -> Board:
    """The board after a slide; the same board if no tile moves."""
    if move in ("up", "down"):
        # All four directions are the slide of a row to the left, seen from another side.
        return transpose(slide_board(transpose(board), "left" if move == "up" else "right"))
    if move == "right":
        return tuple(slide_row(row[::-1])[::-1] for row in board)
    return tuple(slide_row(row) for row in board)


def transpose(board: Board) -> Board:
    """The board with columns as rows."""
    return tuple(zip(*board, strict=True))


@cache
def slide_row(row: tuple[int, ...]) -> tuple[int, ...]:
    """The row after a slide to the left; a tile merges at most once."""
    tiles: list[int] = []
    open_to_merge = False
    for tile in filter(None, row):
        # A tile that has just merged is closed, as in the original: 2 2 4 becomes 4 4, not 8.
        if open_to_merge and tiles[-1] == tile:
            tiles[-1] *= 2
            open_to_merge = False
        else:
            tiles.append(tile)
            open_to_merge = True
    return (*tiles, *(0,) * (len(row) - len(tiles)))


def worth(board: Board) -> int:
    """Heuristic value of a board: high for large tiles in order and many free cells."""
    tiles = [
        (n, w) for row, ws in zip(board, WEIGHTS, strict=True) for n, w in zip(row, ws, strict=True)
    ]
    return sum(n * w if n else EMPTY_WORTH for n, w in tiles)
