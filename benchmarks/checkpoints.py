"""Time that training stands still for a checkpoint: written at once, and in the background.

    python benchmarks/checkpoints.py [--hidden 512] [--layers 8] [--folder /where/checkpoints/go]

The whole state of a run with AdamW, 12 bytes per param, is synced to disk. "stall" is how long the
call takes, "complete" how long until the checkpoint is there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import save_shards, save_training
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def trained(args: argparse.Namespace) -> tuple[Trainer, Callable[..., None]]:
    """A trainer after its first update, so that there are moments to save; and what writes it."""
    tokenizer = make_tokenizer(["a b c"])
    model = make_tiny_model(tokenizer, hidden_size=args.hidden, num_layers=args.layers)
    row = SAWItem(
        input_ids=np.arange(5, 13, dtype=np.int32),
        action_mask=np.arange(8) >= 2,
        weight=np.ones(8, np.float32),
    )
    trainer = Trainer(model, sft(), OfflineBatchSource([row], batch_size=1))
    trainer.update([row])
    return trainer, partial(save_model, model, tokenizer)


def seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(args: argparse.Namespace, folder: Path) -> tuple[int, dict[str, tuple[float, float]]]:
    """Params; and by way of saving: seconds of stall, seconds until complete."""
    trainer, write = trained(args)
    manager = CheckpointManager(folder, keep_last=1)
    found: dict[str, list[tuple[float, float]]] = {}
    with BackgroundSaver(manager) as saver:
        ways: dict[str, Callable[[int], None]] = {
            "save_training": lambda k: save_training(manager, trainer, write, step=k),
            "save_shards": lambda k: save_shards(manager, trainer, step=k),
            "background save_training": lambda k: saver.save_training(trainer, write, step=k),
            "background save_shards": lambda k: saver.save_shards(trainer, step=k),
        }
        step = 0
        for _ in range(args.repeats):
            for name, save in ways.items():
                step += 1
                stall = seconds(partial(save, step))
                rest = seconds(saver.finish)
                found.setdefault(name, []).append((stall, stall + rest))
    params = sum(p.numel() for p in trainer.model.parameters())
    return params, {name: min(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="left out, a temporary one")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        params, found = measure(args, Path(folder))
    least = found["save_training"][0]
    title = f"{params / 1e6:.0f}M params, {12 * params / 2**30:.2f} GiB"
    table = Table("", "stall s", "complete s", "stall / save_training", title=title)
    for name, (stall, complete) in found.items():
        table.add_row(name, f"{stall:.3f}", f"{complete:.3f}", f"{stall / least:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
