"""Two-digit sums in words, learned on four fifths of the pairs and measured on the others.

The demonstrations are right; imitating them gets most of the way, and rewards the rest.
"""

from __future__ import annotations

from pathlib import Path

from ludic_train.runs.config import Demonstrations, EvalTasks, Recipe, RunConfig

ENV_ID = "ludic/Arithmetic-v0"
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
    env_id=ENV_ID,
    kwargs=TRAIN,
    evals={
        "greedy": EvalTasks(kwargs=TEST, temperature=0.0),
        "sampled": EvalTasks(kwargs=TEST),
    },
    demonstrations=Demonstrations(policy="oracle", kwargs=TRAIN, reply="<answer>{}</answer>"),
    max_tokens=16,
    curves=("reward", "eval/greedy/success", "eval/sampled/success", "entropy"),
    try_it=f"bench {ENV_ID} --policy {{out}} --env-kwargs split=test --temperature 0",
)
"""Recipe of `ludic train arithmetic`."""
