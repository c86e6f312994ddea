"""Tic-Tac-Toe by GRPO with LoRA adapters on a chat model, which thinks and then moves in a tag.

    python examples/tic_tac_toe/train_lora.py --model Qwen/Qwen2.5-0.5B-Instruct --updates 200
    python examples/tic_tac_toe/train_lora.py --model runs/tic-tac-toe --harness plain
    ludic play ludic/TicTacToe-v0 --against runs/tic-tac-toe-lora

The second command adapts a model that `ludic train tic-tac-toe` or `train_sft.py` made; it has
learned no tags.
"""

from __future__ import annotations

from pathlib import Path

import tyro

import ludic_train as lt

RIVALS = {"opponent": "mixed", "draw_reward": 0.5}


def train(
    model: str = "Qwen/Qwen2.5-0.5B-Instruct",
    *,
    harness: str = "think-tag",
    engine: tuple[str, ...] = ("local",),
    updates: int = 200,
    groups: int = 16,
    eval_episodes: int = 100,
    out: Path = Path("runs/tic-tac-toe-lora"),
) -> None:
    """Play against a rival that is random in half of the games, and perfect in the others."""
    lt.train(
        "ludic/TicTacToe-v0",
        model=model,
        harness=harness,
        env_kwargs=RIVALS,
        lora_rank=8,
        engine=engine,
        updates=updates,
        groups=groups,
        eval_episodes=eval_episodes,
        final_episodes=eval_episodes,
        out=out,
    )


if __name__ == "__main__":
    tyro.cli(train)
