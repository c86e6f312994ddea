"""The trainer: learns from groups that actors push, and publishes the params they play with.

    redis-server --port 6379 --appendonly yes
    python examples/pipeline_rl/run_trainer.py --queue redis://localhost:6379 --params params

With `--servers http://localhost:8000` it publishes to that server, not to the folder; even_digit.py
has the command that starts one. After a kill and a restart it continues from its checkpoint and
loses no group.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import even_digit

import ludic_train as lt


def show(version: int, metrics: lt.Metrics) -> None:
    """One line per update."""
    reward, lag = metrics["reward"].value, metrics["lag/max"].value
    print(f"update {version:3d}  reward {reward:.2f}  lag {lag:.0f}", flush=True)


async def train(url: str, params: str, updates: int, urls: Sequence[str]) -> None:
    """Make the updates that are left, with a checkpoint every ten."""
    model, tokenizer = even_digit.model()
    queue = lt.open_queue(url, "even-digit")
    source = lt.PipelineBatchSource(queue, groups_per_batch=8, group_size=8)
    publisher = lt.FilesPublisher(urls) if urls else lt.FolderPublisher(params)
    algo, cfg = lt.grpo(max_lag=2), lt.TrainerConfig(lr=3e-3)
    trainer = lt.Trainer(model, algo, source, publisher, cfg)
    checkpoints = lt.CheckpointManager(Path(params) / "checkpoints")
    lt.resume_training(checkpoints, trainer)

    def write_model(folder: Path, params: object) -> None:
        lt.save_model(model, tokenizer, folder)

    while trainer.version < updates:
        await trainer.train(1, show)
        if trainer.version % 10 == 0:
            lt.save_training(checkpoints, trainer, write_model)
    await source.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="redis://localhost:6379")
    parser.add_argument("--params", default="params")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--servers", nargs="*", default=[])
    args = parser.parse_args()
    asyncio.run(train(args.queue, args.params, args.updates, args.servers))
