"""Maze and Sokoban: one-player games on a grid of cells."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ludic_gym.envs.core.base import checked_range, pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.one_player import Outcome, SolitaireEnv
from ludic_gym.errors import NoOracle

S = TypeVar("S", bound=Hashable)
Cell = tuple[int, int]

# Action -> step in rows and columns.
DIRECTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def neighbour(cell: Cell, direction: str) -> Cell:
    """The adjacent cell in the direction."""
    dy, dx = DIRECTIONS[direction]
    return cell[0] + dy, cell[1] + dx


def shortest_path(
    start: S, next_states: Callable[[S], Iterable[tuple[str, S]]], is_goal: Callable[[S], bool]
) -> tuple[str, ...] | None:
    """The actions on a shortest path from the state to a goal; None if there is no path.

    Breadth-first search, with neighbours in the order of `next_states`.
    """
    # Where a state was reached from, which also marks it as visited.
    before: dict[S, tuple[S, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if is_goal(state):
            actions = []
            while step := before[state]:
                state, action = step
                actions.append(action)
            return tuple(reversed(actions))
        for action, after in next_states(state):
            if after not in before:
                before[after] = (state, action)
                queue.append(after)
    return None


TURNS_PER_CELL = 2


class MazeEnv(SolitaireEnv):
    """Walk to the goal of a maze that has exactly one path between any two places.

    - Observation: the map with walls (#), the walker (@) and the goal (G).
    - Action: up, down, left or right; legal if there is no wall.
    - Reward and info: see `SolitaireEnv`.

    Args:
        size: cells per side; the map has walls between them.
        turns: number of steps; 0 for two per cell, which is always enough.
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
        self.floor = carve_maze(self._size, rng)
        self.at: Cell = (1, 1)
        self.goal: Cell = (2 * self._size - 1, 2 * self._size - 1)

    def game(self) -> str:
        """The floor."""
        return repr(sorted(self.floor))

    def move(self, action: str) -> Outcome:
        """Take a step."""
        move = action.lower()
        if move not in self.allowed_actions():
            return "illegal"
        self.at = neighbour(self.at, move)
        return "win" if self.at == self.goal else ""

    def view(self) -> str:
        """The map."""
        side = range(2 * self._size + 1)
        return "\n".join("".join(self._symbol((y, x)) for x in side) for y in side)

    def _symbol(self, cell: Cell) -> str:
        if cell == self.at:
            return "@"
        return "G" if cell == self.goal else " " if cell in self.floor else "#"

    def allowed_actions(self) -> tuple[str, ...]:
        """Directions without a wall."""
        return tuple(move for move, _ in self._steps(self.at))

    def _steps(self, cell: Cell) -> Iterator[tuple[str, Cell]]:
        for move in DIRECTIONS:
            if (after := neighbour(cell, move)) in self.floor:
                yield move, after

    def best_action(self) -> str:
        """The first step of the shortest path."""
        path = shortest_path(self.at, self._steps, lambda cell: cell == self.goal)
        # The floor is connected by construction, so a missing path is a fault of ours.
        assert path, "every place of the maze is connected"
        return path[0]


def carve_maze(size: int, rng: np.random.Generator) -> frozenset[Cell]:
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


Cells = frozenset[Cell]
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
# One inner cell in eight is a wall.
CELLS_PER_WALL = 8
# Steps of the backward walk that makes a level, which is a solution read from its end: no level
# needs more.
WALK = 40


class SokobanEnv(SolitaireEnv):
    """Push all boxes onto goals. Boxes cannot be pulled, and only one is pushed at a time.

    - Observation: the map with walls (#), the player (@, or + on a goal), boxes ($, or * on a
      goal) and goals (.).
    - Action: up, down, left or right; legal if there is neither a wall nor a blocked box.
    - Reward and info: see `SolitaireEnv`.

    Args:
        size: rows and columns, with the outer wall.
        boxes: number of boxes and of goals.
        turns: number of steps; no level needs more than 40.
    """

    def __init__(
        self,
        size: int = 6,
        boxes: int = 2,
        turns: int = 50,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        super().__init__(turns, render_mode, split=split)
        self._size = checked_range("size", size, 5, 10)
        self._count = checked_range("boxes", boxes, 1, 4)
        self.prompt = (
            "Push every box ($) onto a goal (.). You are @ (+ on a goal), * is a box on a goal, # "
            f"a wall. You have {self.turns} steps. Reply with just up, down, left or right."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Draw levels until one has no box on a goal."""
        while True:
            side = range(1, self._size - 1)
            inside = [(y, x) for y in side for x in side]
            # By permutation, so that every level of a size has the same number of walls.
            walls = rng.permutation(len(inside))[: len(inside) // CELLS_PER_WALL]
            self.floor = frozenset(inside) - {inside[int(i)] for i in walls}
            cells = sorted(self.floor)
            places = [cells[int(i)] for i in rng.permutation(len(cells))[: self._count + 1]]
            self.goals = frozenset(places[1:])
            self.at, self.boxes = walked_back(self.floor, places[0], self.goals, rng)
            # A box that begins on its goal would have to be left alone, which makes the level
            # easier.
            if not self.boxes & self.goals:
                return

    def game(self) -> str:
        """The floor, the player, the boxes and the goals."""
        return repr((sorted(self.floor), self.at, sorted(self.boxes), sorted(self.goals)))

    def move(self, action: str) -> Outcome:
        """Take a step, which may push a box."""
        # The legal steps come with their results: at most four, cheaper than a second function.
        after = dict(pushes(self.floor, (self.at, self.boxes))).get(action.lower())
        if after is None:
            return "illegal"
        self.at, self.boxes = after
        return "win" if self.boxes == self.goals else ""

    def view(self) -> str:
        """The map."""
        side = range(self._size)
        return "\n".join("".join(self._symbol((y, x)) for x in side) for y in side)

    def _symbol(self, cell: Cell) -> str:
        if cell not in self.floor:
            return "#"
        plain, on_goal = "@+" if cell == self.at else "$*" if cell in self.boxes else " ."
        return on_goal if cell in self.goals else plain

    def allowed_actions(self) -> tuple[str, ...]:
        """Directions in which the player can step."""
        return tuple(action for action, _ in pushes(self.floor, (self.at, self.boxes)))

    def best_action(self) -> str:
        """The first step of a shortest solution. Raises NoOracle if there is none any more."""
        path = solution(self.floor, self.goals, self.at, self.boxes)
        if path is None:
            raise NoOracle(f"a box is stuck for good:\n{self.view()}")
        return path[0]


def walked_back(
    floor: Cells, at: Cell, boxes: Cells, rng: np.random.Generator
) -> tuple[Cell, Cells]:
    """Player and boxes after a random walk that pulls boxes, which is a solution backwards."""
    for _ in range(WALK):
        moves = [move for move in DIRECTIONS if neighbour(at, move) in floor - boxes]
        if not moves:
            break
        pulls = [move for move in moves if neighbour(at, OPPOSITE[move]) in boxes]
        # A walk that always pulls moves one box to and fro and leaves the others on their goals.
        move = pick(rng, pulls if pulls and rng.random() < 0.5 else moves)
        behind = neighbour(at, OPPOSITE[move])
        if behind in boxes:
            boxes = boxes - {behind} | {at}
        at = neighbour(at, move)
    return at, boxes


def pushes(floor: Cells, state: tuple[Cell, Cells]) -> Iterator[tuple[str, tuple[Cell, Cells]]]:
    """Legal steps, each with the player and the boxes after it."""
    at, boxes = state
    for move in DIRECTIONS:
        ahead = neighbour(at, move)
        if ahead not in floor:
            continue
        if ahead not in boxes:
            yield move, (ahead, boxes)
        elif (beyond := neighbour(ahead, move)) in floor and beyond not in boxes:
            yield move, (ahead, boxes - {ahead} | {beyond})


@lru_cache(maxsize=2**8)
def solution(floor: Cells, goals: Cells, at: Cell, boxes: Cells) -> tuple[str, ...] | None:
    """The actions of a shortest solution; None if there is no solution."""
    start = (at, boxes)
    return shortest_path(start, lambda state: pushes(floor, state), lambda s: s[1] == goals)
