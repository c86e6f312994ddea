"""The trainer: learns from groups that actors push, and publishes the params they play with.

    redis-server --port 6379 --appendonly yes
    python examples/pipeline_rl/run_trainer.py --queue redis://localhost:6379 --params params

With `--servers http://localhost:8000` it publishes to that server, not to the folder; even_digit.py
says how to start one. Killed, it goes on from its last checkpoint when it is started again, without
losing a group.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import even_digit

from ludic_train.algorithms.presets import grpo
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_training
from ludic_train.metrics import Metrics
from ludic_train.models.load import save_model
from ludic_train.pipeline.queues.open_queue import open_queue
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.publishers.folder import FolderPublisher
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.trainer.trainer import Trainer, TrainerConfig


def show(version: int, metrics: Metrics) -> None:
    """One line per update."""
    reward, lag = metrics["reward"].value, metrics["lag/max"].value
    print(f"update {version:3d}  reward {reward:.2f}  lag {lag:.0f}", flush=True)


async def train(url: str, params: str, updates: int, urls: Sequence[str]) -> None:
    """Make the updates that are left, with a checkpoint every ten."""
    model, tokenizer = even_digit.model()
    cfg = TrainerConfig(lr=3e-3, max_lag=2)
    source = PipelineBatchSource(open_queue(url, "even-digit"), groups_per_batch=8, cfg=cfg)
    publisher = VLLMPublisher(urls) if urls else FolderPublisher(params)
    trainer = Trainer(model, grpo(), source, publisher, cfg)
    checkpoints = CheckpointManager(Path(params) / "checkpoints")
    resume_training(checkpoints, trainer)
    while trainer.version < updates:
        await trainer.train(1, show)
        if trainer.version % 10 == 0:
            save_training(checkpoints, trainer, lambda path, _: save_model(model, tokenizer, path))
    await source.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="redis://localhost:6379")
    parser.add_argument("--params", default="params")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--servers", nargs="*", default=[])
    args = parser.parse_args()
    asyncio.run(train(args.queue, args.params, args.updates, args.sampler))
