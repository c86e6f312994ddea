"""Tic-Tac-Toe: the rules, and environments for one agent, two in turn, and two jointly.

A state is the board as a string of nine characters, left to right and top to bottom: X, O, or a
dot for a free cell ("X...O....").
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np

from ludic_gym.envs.core.game import Game, solved
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv

MARKS = "XO"
FREE = "."
CELLS = tuple(row + column for row in "ABC" for column in "123")
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
PROMPT = (
    "You play Tic-Tac-Toe as {mark}; X moves first. The rows of the board are A to C, its columns "
    "1 to 3, and a dot is a free cell. Three marks in a row, column or diagonal win. Reply with "
    "just the row and the column of a free cell, such as B2."
)


def initial(rng: np.random.Generator) -> str:
    """The empty board."""
    return FREE * len(CELLS)


@cache
def legal_actions(state: str) -> tuple[str, ...]:
    """The names of the free cells."""
    return tuple(cell for cell, mark in zip(CELLS, state, strict=True) if mark == FREE)


@cache
def mover(state: str) -> int:
    """Player 0, who is X, if there are as many X as O on the board."""
    # X moves first, so the difference is 0 or 1.
    return state.count("X") - state.count("O")


@cache
def play(state: str, action: str) -> str:
    """The board with the mover's mark on the cell."""
    i = CELLS.index(action)
    return state[:i] + MARKS[mover(state)] + state[i + 1 :]


@cache
def returns(state: str) -> tuple[float, float] | None:
    """1 for three in a line and -1 for the other player; 0 for both on a full board."""
    for i, j, k in LINES:
        if state[i] == state[j] == state[k] != FREE:
            return (1.0, -1.0) if state[i] == "X" else (-1.0, 1.0)
    return None if FREE in state else (0.0, 0.0)


@cache
def observation(state: str, player: int) -> str:
    """The board below the names of its columns; the same for both players."""
    rows = (f"{row} {' '.join(state[i : i + 3])}" for row, i in zip("ABC", (0, 3, 6), strict=True))
    return "\n".join(["  1 2 3", *rows])


@cache
def system_prompt(player: int) -> str:
    """The rules, the player's mark and the reply format."""
    return PROMPT.format(mark=MARKS[player])


def cell_name(text: str) -> str:
    """The text in upper case and without white space: " b 2" is "B2"."""
    # Models write the cell in lower case or with a space.
    return "".join(text.split()).upper()


TIC_TAC_TOE = Game(
    name="Tic-Tac-Toe",
    initial=initial,
    mover=mover,
    legal_actions=legal_actions,
    play=play,
    returns=returns,
    observation=observation,
    system_prompt=system_prompt,
    best_actions=solved(mover=mover, legal_actions=legal_actions, play=play, returns=returns),
    read=cell_name,
)


class TicTacToeEnv(OnePlayerEnv[str]):
    """Tic-Tac-Toe against a scripted opponent.

    - Observation: the board with X, O and a dot for a free cell.
    - Action: row and column of a free cell, A1 to C3, in either case.
    - Reward and info: see `OnePlayerEnv`.

    Args:
        opponent: see `OnePlayerEnv`. By default half of the games are against perfect play, where a
            draw is the best outcome: a fixed order of cells wins most games against random play.
        seat, draw_reward: see `OnePlayerEnv`.
    """

    game = TIC_TAC_TOE

    def __init__(
        self,
        opponent: str = "mixed",
        seat: Literal["first", "second", "random"] = "first",
        draw_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, draw_reward, render_mode)


class TicTacToeAECEnv(GameAECEnv[str]):
    """Tic-Tac-Toe for two agents in turn (PettingZoo AEC)."""

    game = TIC_TAC_TOE


def parallel_env(render_mode: str | None = None) -> GameParallelEnv[str]:
    """Tic-Tac-Toe for two agents with joint actions (PettingZoo Parallel)."""
    return GameParallelEnv(TicTacToeAECEnv(render_mode))
