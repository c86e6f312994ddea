"""Self-play: one policy sits on both seats of Tic-Tac-Toe and learns from both.

    python examples/self_play/train_self_play.py [--updates 300]

The seats are not equally good, so each has a baseline of its own: a running mean of its returns
(SPIRAL, Liu et al. 2025, arXiv:2506.24119). The model first imitates random legal moves; an illegal
one loses. Both seats playing perfectly, every game is a draw. Evaluations are against random play.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tyro

import ludic_train as lt


def train(
    *,
    updates: int = 300,
    groups: int = 256,
    eval_every: int = 50,
    eval_episodes: int = 200,
    demonstrations: int = 500,
    sft_updates: int = 150,
    out: Path = Path("runs/self-play"),
) -> None:
    """Imitate, then play; evaluations report how the games end."""
    recipe = lt.recipe_for(["ludic/TicTacToe-v0"], demonstrator="random", self_play=True)
    lt.train(
        replace(recipe, outcomes=("win", "draw", "loss", "illegal")),
        algo="self_play",
        groups=groups,
        group_size=2,
        lr=1e-4,
        entropy=0.01,
        demonstrations=demonstrations,
        sft_updates=sft_updates,
        updates=updates,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        final_episodes=eval_episodes,
        out=out,
    )


if __name__ == "__main__":
    tyro.cli(train)
