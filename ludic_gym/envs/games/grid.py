"""Directions and shortest paths, for games on a map."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)
Cell = tuple[int, int]

# Action -> step in rows and columns.
DIRECTIONS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def shifted(cell: Cell, direction: str) -> Cell:
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
            return _actions(before, state)
        for action, after in next_states(state):
            if after not in before:
                before[after] = (state, action)
                queue.append(after)
    return None


def _actions(before: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    actions = []
    step = before[state]
    while step is not None:
        actions.append(step[1])
        step = before[step[0]]
    return tuple(reversed(actions))
