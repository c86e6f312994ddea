"""Recipes by name: trainings that run as they are, with `ludic train NAME`.

    from ludic_train import TIC_TAC_TOE, train_recipe
    results = await train_recipe(TIC_TAC_TOE, replace(TIC_TAC_TOE.defaults, out=Path("runs/a")))

A recipe of your own is a `Recipe`, which `train_recipe` takes as well; it need not be named here.
"""

from __future__ import annotations

from pathlib import Path

from ludic_train.runs.config import Demonstrations, EvalTasks, Recipe, RunConfig

# The demonstrations are only moves, not good play. Then half of the games are against a random
# rival and half against a perfect one, because a policy that meets only a random rival never learns
# to defend. A draw has to earn more than a loss, but far less than a win.
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
    env_id="ludic/TicTacToe-v0",
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
    try_it="play ludic/TicTacToe-v0 --against {out} --seat second",
)
"""Recipe of `ludic train tic-tac-toe`."""

# Two-digit sums in words, learned on four fifths of the pairs and measured on the others. The
# demonstrations are right; imitating them gets most of the way, and rewards the rest.
TRAIN, TEST = {"split": "train"}, {"split": "test"}
ARITHMETIC = Recipe(
    name="arithmetic",
    summary="a policy that adds two-digit numbers it has never seen together",
    defaults=RunConfig(
        out=Path("runs/arithmetic"),
        demonstrations=20_000,
        sft_updates=1_000,
        updates=150,
        lr=3e-4,
        # Few groups are mixed by then: split further, they would be noise.
        groups=64,
        minibatches=1,
    ),
    env_id="ludic/Arithmetic-v0",
    kwargs=TRAIN,
    evals={
        "greedy": EvalTasks(kwargs=TEST, temperature=0.0),
        "sampled": EvalTasks(kwargs=TEST),
    },
    demonstrations=Demonstrations(policy="oracle", kwargs=TRAIN, reply="<answer>{}</answer>"),
    max_tokens=16,
    curves=("reward", "eval/greedy/success", "eval/sampled/success", "entropy"),
    try_it="bench ludic/Arithmetic-v0 --policy {out} --env-kwargs split=test --temperature 0",
)
"""Recipe of `ludic train arithmetic`."""

RECIPES = {recipe.name: recipe for recipe in (TIC_TAC_TOE, ARITHMETIC)}
