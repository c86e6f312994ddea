"""Nim: take from piles; who takes the last one wins (C. L. Bouton, 1901)."""

from __future__ import annotations

from functools import cache, reduce
from operator import xor

import numpy as np

from ludic_gym.envs.arithmetic import between
from ludic_gym.envs.game import Game
from ludic_gym.envs.one_player import OnePlayerEnv
from ludic_gym.envs.two_player import GameAECEnv, GameParallelEnv

PILES = 3
LARGEST = 7
PROMPT = (
    "You play Nim. Players take turns; each takes any number of stones, at least one, from one "
    "pile. Who takes the last stone of all wins. Reply with just the number of the pile and the "
    "number of stones, such as 1 3 for three stones from the first pile."
)
# The piles, and who is to move.
State = tuple[tuple[int, ...], int]


def initial(rng: np.random.Generator) -> State:
    """Three piles of one to seven stones."""
    return tuple(between(rng, 1, LARGEST) for _ in range(PILES)), 0


def mover(state: State) -> int:
    """The players alternate."""
    return state[1]


@cache
def legal_actions(state: State) -> tuple[str, ...]:
    """Every pile with every number of its stones: "1 3" is three from the first."""
    return tuple(f"{i} {n}" for i, pile in enumerate(state[0], 1) for n in range(1, pile + 1))


def play(state: State, action: str) -> State:
    """The piles without the stones."""
    piles, player = state
    i, n = map(int, action.split())
    return (*piles[: i - 1], piles[i - 1] - n, *piles[i:]), 1 - player


def returns(state: State) -> tuple[float, float] | None:
    """Who is to move without any stone has lost."""
    if any(state[0]):
        return None
    return (-1.0, 1.0) if state[1] == 0 else (1.0, -1.0)


def observation(state: State, player: int) -> str:
    """One line per pile; both players see the same."""
    return "\n".join(f"Pile {i}: {pile}" for i, pile in enumerate(state[0], 1))


def system_prompt(player: int) -> str:
    """The rules and the reply format."""
    return PROMPT


@cache
def best_actions(state: State) -> tuple[str, ...]:
    """What leaves piles whose exclusive or is zero; where nothing does, one stone of the most."""
    best = tuple(action for action in legal_actions(state) if not nim_sum(play(state, action)))
    # A single stone leaves a random opponent the most ways to go wrong.
    return best or (f"{state[0].index(max(state[0])) + 1} 1",)


def nim_sum(state: State) -> int:
    """The exclusive or of the piles; zero means that who is to move loses."""
    return reduce(xor, state[0])


NIM = Game(
    name="Nim",
    initial=initial,
    mover=mover,
    legal_actions=legal_actions,
    play=play,
    returns=returns,
    observation=observation,
    system_prompt=system_prompt,
    best_actions=best_actions,
)


class NimEnv(OnePlayerEnv[State]):
    """Nim against a scripted opponent, from three piles of one to seven stones.

    Action: the number of a pile, and how many stones to take from it. Whether the first or the
    second player can force a win depends on the piles.

        Pile 1: 3
        Pile 2: 4
        Pile 3: 0
    2 1                 (leaves 3 and 3; the opponent takes all of pile 1)
        Pile 1: 0
        Pile 2: 3
        Pile 3: 0
    2 3                 (reward 1)
    """

    game = NIM


class NimAECEnv(GameAECEnv[State]):
    """Nim for two agents in turn."""

    game = NIM


def parallel_env(render_mode: str | None = None) -> GameParallelEnv[State]:
    """Nim for two agents with joint actions."""
    return GameParallelEnv(NimAECEnv(render_mode))
