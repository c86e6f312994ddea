"""Tic-Tac-Toe, moving first: imitate random legal moves, then learn from the outcome of games.

Nobody plays well in the demonstrations; they only show what a move is. Then half of the games are
against a random rival and half against a perfect one, because whoever only meets a random rival
never learns to defend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.types import Sampling, Task
from ludic_train.runs.config import Recipe, RecipeConfig

ENV_ID = "ludic/TicTacToe-v0"
MAX_TOKENS = 8
SAMPLING = Sampling(max_tokens=MAX_TOKENS)
# Far above the seeds of games that are learned from.
SHOWN_FROM, MEASURED_FROM = 2**61, 2**60


def demonstrations(seed: int, episodes: int) -> Iterable[Task]:
    """Games of random legal moves."""
    for i in range(episodes):
        number = SHOWN_FROM + seed * 1_000_000 + i
        yield Task(env_id=ENV_ID, seed=number, sampling=Sampling(seed=number))


def tasks(seed: int) -> Iterator[Task]:
    """Games to learn from; a draw has to earn more than a loss, but far less than a win."""
    kwargs = {"opponent": "mixed", "draw_reward": 0.2}
    for i in count(seed * 1_000_000):
        yield Task(env_id=ENV_ID, kwargs=kwargs, seed=i, sampling=replace(SAMPLING, seed=i))


def measures(episodes: int) -> dict[str, list[Task]]:
    """Sampled games against each rival."""
    return {
        rival: [
            Task(
                env_id=ENV_ID,
                kwargs={"opponent": rival},
                seed=number,
                sampling=replace(SAMPLING, seed=number),
            )
            for number in range(MEASURED_FROM, MEASURED_FROM + episodes)
        ]
        for rival in ("perfect", "random")
    }


TIC_TAC_TOE = Recipe(
    name="tic-tac-toe",
    summary="a policy that never loses to perfect play and beats a random rival",
    defaults=RecipeConfig(
        out=Path("runs/tic-tac-toe"),
        demonstrations=4_000,
        imitation_updates=200,
        updates=1_000,
        lr=1e-3,
        # In large groups somebody still tries another move where nearly all play the same.
        groups=16,
        group_size=16,
        entropy=0.06,
    ),
    demonstrations=demonstrations,
    demonstrator=RandomPolicy,
    max_tokens=MAX_TOKENS,
    tasks=tasks,
    measures=measures,
    outcomes=("win", "draw", "loss", "illegal"),
    curves=("reward", "eval/perfect/draw", "eval/random/win", "entropy"),
    # It has learned to move first, so the human moves second.
    try_it=f"play {ENV_ID} --against {{out}} --seat second",
)
