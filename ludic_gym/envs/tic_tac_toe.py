"""Tic-Tac-Toe: the rules, and the game for one player, two in turn, and two jointly.

A state is the board as a string of nine cells, left to right and top to bottom: a free cell is
its number, a taken one is X or O ("12X4O6789").
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ludic_gym.envs.game import Game, solved
from ludic_gym.envs.one_player import OnePlayerEnv
from ludic_gym.envs.two_player import GameAECEnv, GameParallelEnv

MARKS = "XO"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
PROMPT = (
    "You play Tic-Tac-Toe as {mark}; X moves first. The board shows each free cell by its number. "
    "Three marks in a row, column or diagonal win. Reply with just the number of a free cell."
)


def initial(rng: np.random.Generator) -> str:
    """The empty board; there is no chance in this game."""
    return "123456789"


@cache
def legal_actions(state: str) -> tuple[str, ...]:
    """The numbers of the free cells."""
    return tuple(cell for cell in state if cell not in MARKS)


@cache
def mover(state: str) -> int:
    """Player 0, who is X, when as many X as O are on the board."""
    return state.count("X") - state.count("O")


@cache
def play(state: str, action: str) -> str:
    """The board with the mover's mark on the cell."""
    return state.replace(action, MARKS[mover(state)])


@cache
def returns(state: str) -> tuple[float, float] | None:
    """1 for three in a line, -1 for the other player, 0 for both on a full board."""
    for i, j, k in LINES:
        if state[i] == state[j] == state[k]:
            return (1.0, -1.0) if state[i] == "X" else (-1.0, 1.0)
    return None if legal_actions(state) else (0.0, 0.0)


@cache
def observation(state: str, player: int) -> str:
    """The board in three lines; both players see the same."""
    return "\n".join(" ".join(state[i : i + 3]) for i in (0, 3, 6))


def system_prompt(player: int) -> str:
    """The rules, the player's mark and the reply format."""
    return PROMPT.format(mark=MARKS[player])


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
)


class TicTacToeEnv(OnePlayerEnv[str]):
    """Tic-Tac-Toe against a scripted opponent; the action is the number of a free cell."""

    game = TIC_TAC_TOE


class TicTacToeAECEnv(GameAECEnv[str]):
    """Tic-Tac-Toe for two agents in turn."""

    game = TIC_TAC_TOE


def parallel_env(render_mode: str | None = None) -> GameParallelEnv[str]:
    """Tic-Tac-Toe for two agents with joint actions."""
    return GameParallelEnv(TicTacToeAECEnv(render_mode))
