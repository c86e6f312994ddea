"""Competition maths on several GPUs: FSDP2, bf16, a strict format, evaluations, checkpoints.

    ludic serve Qwen/Qwen2.5-7B-Instruct --port 8000          # on a GPU that does not train
    torchrun --nproc-per-node 4 examples/fsdp2_training/train_math_fsdp2.py \
        --model Qwen/Qwen2.5-7B-Instruct --engine http://localhost:8000 --dtype bf16 \
        --recompute --updates 500 --out runs/math-7b
    python examples/fsdp2_training/train_math_fsdp2.py --offline
    torchrun --nproc-per-node 2 examples/fsdp2_training/train_math_fsdp2.py --offline

The first command with --resume continues from the last checkpoint. An offline run then ends with
the same params, bit for bit, as one that was never stopped; servers repeat no sample to the bit.
`ludic view runs/math-7b` makes a page of the curves and of some rollouts.

Rank 0 plays, plans and evaluates; the plan gives every rank its own micro-batches, equally many.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import tyro

import ludic_gym as lg
import ludic_train as lt

HARNESS = lg.Harness(
    system_prompt="Think inside <think></think>, then give the final answer as \\boxed{...}.",
    parser="think+boxed",
    form="<think></think>\\boxed{{}}",
)


def train(
    model: str = "Qwen/Qwen2.5-7B-Instruct",
    *,
    offline: bool = False,
    engine: tuple[str, ...] = ("local",),
    device: str = "auto",
    dtype: Literal["float32", "bf16"] = "float32",
    recompute: bool = False,
    updates: int = 200,
    eval_every: int = 20,
    eval_episodes: int = 50,
    eval_temperature: float = 0.0,
    temperature: float = 1.0,
    groups: int = 8,
    group_size: int = 8,
    max_tokens: int = 1024,
    max_length: int = 4096,
    micro_tokens: int = 16384,
    lr: float = 1e-6,
    log: tuple[Literal["wandb", "trackio", "tensorboard"], ...] = (),
    resume: bool = False,
    out: Path = Path("runs/math-fsdp2"),
) -> None:
    """Train all params on the problems that are not in MATH-500, and measure on MATH-500."""
    recipe = lt.recipe_for(
        ["ludic/MATH-v0"],
        model=None if offline else model,
        env_kwargs={} if offline else {"split": "train"},
        eval_kwargs={} if offline else {"split": "test"},
    )
    evals = {n: replace(e, temperature=eval_temperature) for n, e in recipe.evals.items()}
    algo = lt.dapo(max_tokens=max_tokens, buffer=max_tokens // 4)
    if offline:
        # A tiny model earns the same everywhere, which teaches nothing within a group.
        algo = replace(algo, credit=lt.EpisodicReturn(), filter=None, full_batches=False)
    lt.train(
        replace(recipe, evals=evals),
        harness=HARNESS,
        algo=algo,
        lora_rank=0,
        demonstrations=130 if offline else 0,
        sft_updates=2 if offline else 0,
        preflight=not offline,
        engine=engine,
        device=device,
        dtype=dtype,
        recompute=recompute,
        updates=updates,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        final_episodes=eval_episodes,
        temperature=temperature,
        groups=groups,
        group_size=group_size,
        max_tokens=max_tokens,
        max_length=max_length,
        micro_tokens=micro_tokens,
        lr=lr,
        log=log,
        resume=resume,
        out=out,
    )


if __name__ == "__main__":
    tyro.cli(train)
