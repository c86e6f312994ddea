"""Connect Four: drop discs, four in a line win.

A state is (discs of X, discs of O), each an integer with a bit per cell: bit 7 * column + row,
row 0 at the bottom. A column's seventh bit stays free, so that lines do not wrap around.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ludic_gym.envs.core.game import Game, random_action
from ludic_gym.envs.core.game import perfect_action as expert_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv

COLUMNS, ROWS = 7, 6
HEIGHT = ROWS + 1
MARKS = "XO"
FULL = sum(((1 << ROWS) - 1) << HEIGHT * column for column in range(COLUMNS))
# Distances between bits: up, right, and the two diagonals.
STEPS = (1, HEIGHT, HEIGHT + 1, HEIGHT - 1)
# Columns near the centre are in more lines, so alpha-beta cuts off sooner if they come first.
ORDER = (3, 2, 4, 1, 5, 0, 6)
# Each further move makes the search up to seven times as long.
DEPTH = 4
PROMPT = (
    "You play Connect Four as {mark}; X moves first. A disc falls to the lowest free cell (.) of "
    "its column. Four in a row, column or diagonal win. Reply with just the number of a column "
    "that is not full, such as 4."
)
State = tuple[int, int]


def initial(rng: np.random.Generator) -> State:
    """The empty board."""
    return 0, 0


def mover(state: State) -> int:
    """Player 0, who is X, if there are as many X as O on the board."""
    # X moves first, so the difference is 0 or 1.
    return state[0].bit_count() - state[1].bit_count()


@lru_cache(maxsize=2**16)
def legal_actions(state: State) -> tuple[str, ...]:
    """The numbers of the columns that are not full, from 1."""
    taken = state[0] | state[1]
    return tuple(str(c + 1) for c in range(COLUMNS) if not taken >> (HEIGHT * c + ROWS - 1) & 1)


def play(state: State, action: str) -> State:
    """The board with the mover's disc on top of the column."""
    disc = drop_disc(state[0] | state[1], int(action) - 1)
    return (state[0] | disc, state[1]) if mover(state) == 0 else (state[0], state[1] | disc)


def drop_disc(taken: int, column: int) -> int:
    """The bit of the lowest free cell of the column."""
    # Adding 1 to the bottom of a column carries up to its lowest free bit; a full column carries
    # into its seventh bit, which the mask removes.
    return (taken + (1 << HEIGHT * column)) & ~taken & (((1 << ROWS) - 1) << HEIGHT * column)


def has_four(discs: int) -> bool:
    """True if four of the discs are in a line."""
    for step in STEPS:
        # Two discs in a line, and two of these pairs two steps apart, are four in a line.
        pairs = discs & discs >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


def returns(state: State) -> tuple[float, float] | None:
    """1 for four in a line and -1 for the other player; 0 for both on a full board."""
    if has_four(state[0]):
        return 1.0, -1.0
    if has_four(state[1]):
        return -1.0, 1.0
    return (0.0, 0.0) if state[0] | state[1] == FULL else None


def observation(state: State, player: int) -> str:
    """The board, the top row first, above the numbers of the columns; the same for both players."""
    lines = []
    for row in reversed(range(ROWS)):
        cells = [1 << HEIGHT * column + row for column in range(COLUMNS)]
        lines.append(" ".join("X" if state[0] & c else "O" if state[1] & c else "." for c in cells))
    return "\n".join([*lines, " ".join(str(c + 1) for c in range(COLUMNS))])


def system_prompt(player: int) -> str:
    """The rules, the player's mark and the reply format."""
    return PROMPT.format(mark=MARKS[player])


@lru_cache(maxsize=2**14)
def best_actions(state: State) -> tuple[str, ...]:
    """The best columns by a search of five moves, those near the centre first.

    This is strong play, not perfect play: the whole game is too large for an exhaustive search.
    """
    # The search sees the mover's discs first, so that one function serves both players.
    mine, other = state if mover(state) == 0 else state[::-1]
    taken = mine | other
    # In this order, because the first of equal columns is the oracle's.
    values = {}
    for column in ORDER:
        if disc := drop_disc(taken, column):
            values[column] = -negamax(other, mine | disc, DEPTH, -10_000, 10_000)
    best = max(values.values())
    return tuple(str(column + 1) for column, value in values.items() if value == best)


def negamax(mine: int, other: int, depth: int, alpha: int, beta: int) -> int:
    """Value of the position for its mover: 100 or more in size for a forced end, more if sooner.

    Alpha-beta search (Knuth and Moore 1975); values outside of alpha to beta are bounds only.
    """
    if has_four(other):
        # With more depth left the loss comes sooner, and is worse.
        return -100 - depth
    taken = mine | other
    # No estimate of undecided positions: a win or a loss within the depth is all that it sees.
    if taken == FULL or depth == 0:
        return 0
    for column in ORDER:
        if disc := drop_disc(taken, column):
            alpha = max(alpha, -negamax(other, mine | disc, depth - 1, -beta, -alpha))
            if alpha >= beta:
                break
    return alpha


CONNECT_FOUR = Game(
    name="Connect Four",
    initial=initial,
    mover=mover,
    legal_actions=legal_actions,
    play=play,
    returns=returns,
    observation=observation,
    system_prompt=system_prompt,
    best_actions=best_actions,
)


class ConnectFourEnv(OnePlayerEnv[State]):
    """Connect Four against a scripted opponent.

    - Observation: the board with X, O and . for a free cell, and the numbers of the columns.
    - Action: the number of a column that is not full.
    - Reward and info: see `OnePlayerEnv`.

    Args:
        opponent: "random", "search" (one of the best moves of a search of five moves, uniformly
            at random), or "mixed" (one of the two, drawn for each episode).
    """

    game = CONNECT_FOUR
    opponents = {  # noqa: RUF012 (as the base class has it)
        "random": (random_action,),
        "search": (expert_action,),
        "mixed": (random_action, expert_action),
    }


class ConnectFourAECEnv(GameAECEnv[State]):
    """Connect Four for two agents in turn (PettingZoo AEC)."""

    game = CONNECT_FOUR


def parallel_env(render_mode: str | None = None) -> GameParallelEnv[State]:
    """Connect Four for two agents with joint actions (PettingZoo Parallel)."""
    return GameParallelEnv(ConnectFourAECEnv(render_mode))
