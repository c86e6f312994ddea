"""Two-digit sums in words, learned on four fifths of the pairs and measured on the others.

The demonstrations are right; imitating them gets most of the way, and rewards the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from ludic_gym.policies.reference import OraclePolicy
from ludic_gym.types import Sampling, Task
from ludic_train.runs.config import Recipe, RecipeConfig

ENV_ID = "ludic/Arithmetic-v0"
MAX_TOKENS = 16
TRAIN, TEST = {"split": "train"}, {"split": "test"}
# Far above the seeds of problems that are learned from.
SHOWN_FROM, MEASURED_FROM = 2**61, 2**60


def demonstrations(seed: int, episodes: int) -> Iterable[Task]:
    """Problems of the training pairs."""
    first = SHOWN_FROM + seed * 1_000_000
    for i in range(first, first + episodes):
        yield Task(env_id=ENV_ID, kwargs=TRAIN, seed=i)


def tasks(seed: int) -> Iterator[Task]:
    """Other problems of the training pairs."""
    for i in count(seed * 1_000_000):
        yield Task(
            env_id=ENV_ID, kwargs=TRAIN, seed=i, sampling=Sampling(max_tokens=MAX_TOKENS, seed=i)
        )


def measures(episodes: int) -> dict[str, list[Task]]:
    """Problems of the pairs that are held out, answered greedily and sampled."""
    return {
        name: [
            Task(
                env_id=ENV_ID,
                kwargs=TEST,
                seed=i,
                sampling=Sampling(temperature=temperature, max_tokens=MAX_TOKENS, seed=i),
            )
            for i in range(MEASURED_FROM, MEASURED_FROM + episodes)
        ]
        for name, temperature in (("greedy", 0.0), ("sampled", 1.0))
    }


ARITHMETIC = Recipe(
    name="arithmetic",
    summary="a policy that adds two-digit numbers it has never seen together",
    defaults=RecipeConfig(
        out=Path("runs/arithmetic"),
        demonstrations=20_000,
        imitation_updates=1_000,
        updates=150,
        lr=3e-4,
        groups=64,
        # Few groups are mixed by then: split further, they would be noise.
        minibatches=1,
    ),
    demonstrations=demonstrations,
    demonstrator=OraclePolicy,
    max_tokens=MAX_TOKENS,
    reply="<answer>{}</answer>",
    tasks=tasks,
    measures=measures,
    outcomes=("success", "failure", "truncated"),
    curves=("reward", "eval/greedy/success", "eval/sampled/success", "entropy"),
    try_it=f"bench {ENV_ID} --policy {{out}} --env-kwargs split=test --temperature 0",
)
