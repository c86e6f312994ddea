"""Nim: take stones from piles; the last stone wins (C. L. Bouton, 1901)."""

from __future__ import annotations

from functools import cache, lru_cache, partial, reduce
from operator import xor
from typing import Literal

import numpy as np

from ludic_gym.envs.core.base import between, checked_choice, checked_range
from ludic_gym.envs.core.game import Game
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.splits import SPLITS, Split
from ludic_gym.envs.core.two_player import GameAECEnv, GameParallelEnv

PILES, MOST_PILES = 3, 9
LARGEST, MOST_STONES = 7, 99
PROMPT = (
    "You play Nim. Players take turns; each takes any number of stones, at least one, from one "
    "pile. The player who takes the last stone wins. Reply with just the number of the pile and "
    "the number of stones, such as 1 3 for three stones from the first pile."
)
# The piles, and the player to move.
State = tuple[tuple[int, ...], int]


def initial(piles: int, largest: int, rng: np.random.Generator) -> State:
    """Piles of 1 to `largest` stones."""
    return tuple(between(rng, 1, largest) for _ in range(piles)), 0


def mover(state: State) -> int:
    """The players alternate."""
    return state[1]


@lru_cache(maxsize=2**16)
def legal_actions(state: State) -> tuple[str, ...]:
    """Each pile with each number of its stones; "1 3" is three stones from the first pile."""
    return tuple(f"{i} {n}" for i, pile in enumerate(state[0], 1) for n in range(1, pile + 1))


def play(state: State, action: str) -> State:
    """The piles without the stones taken."""
    piles, player = state
    i, n = map(int, action.split())
    # Empty piles stay, so that the numbers of the others do not change.
    return (*piles[: i - 1], piles[i - 1] - n, *piles[i:]), 1 - player


def returns(state: State) -> tuple[float, float] | None:
    """-1 for the player to move if no stone is left."""
    if any(state[0]):
        return None
    # The last stone was taken by the other player.
    return (-1.0, 1.0) if state[1] == 0 else (1.0, -1.0)


def observation(state: State, player: int) -> str:
    """One line per pile; the same for both players."""
    return "\n".join(f"Pile {i}: {pile}" for i, pile in enumerate(state[0], 1))


def system_prompt(player: int) -> str:
    """The rules and the reply format."""
    return PROMPT


@lru_cache(maxsize=2**16)
def best_actions(state: State) -> tuple[str, ...]:
    """Actions that leave a nim-sum of 0; if there are none, one stone of a largest pile."""
    # From any other state one action leads to a nim-sum of 0, and from such a state none does
    # (Bouton).
    best = tuple(action for action in legal_actions(state) if not nim_sum(play(state, action)))
    # In a lost position, a single stone leaves a random opponent the most ways to err.
    return best or (f"{state[0].index(max(state[0])) + 1} 1",)


def spaced(text: str) -> str:
    """The text with single spaces between words."""
    return " ".join(text.split())


def nim_sum(state: State) -> int:
    """The exclusive or of the piles; 0 is a lost position for the mover."""
    return reduce(xor, state[0])


@cache
def nim(piles: int = PILES, largest: int = LARGEST) -> Game[State]:
    """Nim with piles of 1 to `largest` stones. Raises ConfigError for counts out of range."""
    checked_range("piles", piles, 1, MOST_PILES)
    checked_range("largest", largest, 1, MOST_STONES)
    return Game(
        name="Nim",
        initial=partial(initial, piles, largest),
        mover=mover,
        legal_actions=legal_actions,
        play=play,
        returns=returns,
        observation=observation,
        system_prompt=system_prompt,
        best_actions=best_actions,
        read=spaced,
        made_by=partial(nim, piles, largest),
    )


class NimEnv(OnePlayerEnv[State]):
    """Nim against a scripted opponent.

    A player takes at least one stone from one pile. The last stone wins. The piles decide which
    of the two players can force a win. There are no draws.

    - Observation: the piles.
    - Action: the number of a pile and the number of stones to take.
    - Reward and info: see `OnePlayerEnv`.

    Args:
        opponent: see `OnePlayerEnv`.
        seat: see `OnePlayerEnv`.
        piles: number of piles, 1 to 9.
        largest: largest number of stones in a pile, 1 to 99.
        split: "train" and "test" have no piles in common, in any order; one game in five begins
            with piles of "test".
        render_mode: "ansi", "html" or None.

    ```text
    Pile 1: 3
    Pile 2: 4
    Pile 3: 0
    > 2 1                       (leaves 3 and 3; the opponent takes all of pile 1)
    Pile 1: 0
    Pile 2: 3
    Pile 3: 0
    > 2 3                       (reward 1)
    ```
    """

    def __init__(
        self,
        opponent: str = "random",
        seat: Literal["first", "second", "random"] = "first",
        piles: int = PILES,
        largest: int = LARGEST,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, render_mode=render_mode)
        self.split = checked_choice("split", split, SPLITS)
        self.game = nim(piles, largest)

    def task(self, state: State) -> str:
        """The piles by their size: the best moves from 1, 2 and 3 are those from 3, 2 and 1."""
        return repr(sorted(state[0]))


class NimAECEnv(GameAECEnv[State]):
    """Nim for two agents in turn (PettingZoo AEC); arguments as in `NimEnv`.

    >>> env = NimAECEnv(piles=2, largest=3)
    >>> env.reset(seed=2)
    >>> print(env.observe("player_0"))
    Pile 1: 1
    Pile 2: 1
    """

    def __init__(
        self, piles: int = PILES, largest: int = LARGEST, render_mode: str | None = None
    ) -> None:
        self.game = nim(piles, largest)
        super().__init__(render_mode)


def parallel_env(
    piles: int = PILES, largest: int = LARGEST, render_mode: str | None = None
) -> GameParallelEnv[State]:
    """Nim for two agents with joint actions (PettingZoo Parallel)."""
    return GameParallelEnv(NimAECEnv(piles, largest, render_mode))
