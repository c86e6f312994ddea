"""Maze: walk from one corner to the other on a map."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludic_gym.envs.core.base import checked_range, pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv
from ludic_gym.envs.games.grid import DIRECTIONS, Cell, shifted, shortest_path

TURNS_PER_CELL = 2


class MazeEnv(SolitaireEnv):
    """Walk to the goal of a maze that has exactly one path between any two places.

    - Observation: the map with walls (#), the walker (@) and the goal (G).
    - Action: up, down, left or right; legal if there is no wall.
    - Reward and info: see `SolitaireEnv`.

    Args:
        size: cells per side; the map has walls between them.
        turns: number of steps; 0 for two per cell, which is always enough.
        split: "train" and "test" have no maze in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    #####
    #@  #
    ### #
    #G  #
    #####
    > right
    #####
    # @ #
    ### #
    #G  #
    #####
    ```
    """

    def __init__(
        self, size: int = 4, turns: int = 0, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        self._size = checked_range("size", size, 2, 30)
        super().__init__(turns or TURNS_PER_CELL * size**2, render_mode, split=split)
        self.reply_form = "up, down, left or right"
        self.prompt = (
            "You are at @ in a maze. Walk to G; # is a wall. "
            f"You have {self.turns} steps. Reply with just {self.reply_form}."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Carve a maze and stand in its first corner."""
        self._floor = carved(self._size, rng)
        self._at: Cell = (1, 1)
        self._goal: Cell = (2 * self._size - 1, 2 * self._size - 1)

    def game(self) -> str:
        """The floor."""
        return repr(sorted(self._floor))

    def move(self, action: str) -> Outcome:
        """Take a step."""
        move = action.lower()
        if move not in self.allowed_actions():
            return "illegal"
        self._at = shifted(self._at, move)
        return "win" if self._at == self._goal else ""

    def view(self) -> str:
        """The map."""
        side = range(2 * self._size + 1)
        return "\n".join("".join(self._symbol((y, x)) for x in side) for y in side)

    def _symbol(self, cell: Cell) -> str:
        if cell == self._at:
            return "@"
        return "G" if cell == self._goal else " " if cell in self._floor else "#"

    def allowed_actions(self) -> tuple[str, ...]:
        """Directions without a wall."""
        return tuple(move for move, _ in self._steps(self._at))

    def _steps(self, cell: Cell) -> Iterator[tuple[str, Cell]]:
        for move in DIRECTIONS:
            if (after := shifted(cell, move)) in self._floor:
                yield move, after

    def best_action(self) -> str:
        """The first step of the shortest path."""
        path = shortest_path(self._at, self._steps, lambda cell: cell == self._goal)
        # The floor is connected by construction, so a missing path is a fault of ours.
        assert path, "every place of the maze is connected"
        return path[0]


def carved(size: int, rng: np.random.Generator) -> frozenset[Cell]:
    """The floor of a random maze: cells at odd rows and columns, and the gaps between them.

    Depth-first search with backtracking, so that the floor is a tree.
    """
    floor, path = {(1, 1)}, [(1, 1)]
    while path:
        y, x = path[-1]
        ahead = [
            # Two steps to the next cell; the gap between becomes the passage.
            (dy, dx)
            for dy, dx in DIRECTIONS.values()
            if 0 < y + 2 * dy < 2 * size
            and 0 < x + 2 * dx < 2 * size
            and (y + 2 * dy, x + 2 * dx) not in floor
        ]
        if not ahead:
            path.pop()
            continue
        dy, dx = pick(rng, ahead)
        floor |= {(y + dy, x + dx), (y + 2 * dy, x + 2 * dx)}
        path.append((y + 2 * dy, x + 2 * dx))
    return frozenset(floor)
