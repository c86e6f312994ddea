"""Tic-Tac-Toe, moving first: imitate random legal moves, then learn from the outcome of games.

The demonstrations show only what a move is, not good play. Then half of the games are against a
random rival and half against a perfect one, because a policy that meets only a random rival never
learns to defend. A draw has to earn more than a loss, but far less than a win.
"""

from __future__ import annotations

from pathlib import Path

from ludic_train.runs.config import Demonstrations, EvalTasks, Recipe, RunConfig

ENV_ID = "ludic/TicTacToe-v0"

TIC_TAC_TOE = Recipe(
    name="tic-tac-toe",
    summary="a policy that never loses to perfect play and beats a random rival",
    defaults=RunConfig(
        out=Path("runs/tic-tac-toe"),
        demonstrations=4_000,
        sft_updates=200,
        updates=1_000,
        lr=1e-3,
        # In large groups one member still tries another move where nearly all play the same.
        groups=16,
        group_size=16,
        minibatches=4,
        entropy=0.06,
    ),
    env_id=ENV_ID,
    kwargs={"opponent": "mixed", "draw_reward": 0.2},
    evals={
        "perfect": EvalTasks(kwargs={"opponent": "perfect"}),
        "random": EvalTasks(kwargs={"opponent": "random"}),
    },
    demonstrations=Demonstrations(policy="random"),
    max_tokens=8,
    outcomes=("win", "draw", "loss", "illegal"),
    curves=("reward", "eval/perfect/draw", "eval/random/win", "entropy"),
    # It has learned to move first, so the human moves second.
    try_it=f"play {ENV_ID} --against {{out}} --seat second",
)
"""Recipe of `ludic train tic-tac-toe`."""
