"""Time for which training stands still for pushes and checkpoints, as a share of an update.

    python benchmarks/stall.py [--model 100M] [--servers 2] [--tokens 1024] [--updates 3]

A model with random params is trained on random rows, without a GPU. After each update its params
are pushed to servers, processes of this machine, and a checkpoint is written:

    neither         updates alone
    waits           VLLMPublisher and save_training
    overlaps        BackgroundPublisher and BackgroundSaver, as in `ludic train --queue`

Stalls are those of the trainer's thread, as a share of its updates: by the clock, and in CPU
seconds of that thread, so that the load of other programs does not count. "update" by the clock
grows where pushes and checkpoints need the cores that an update computes on; "process" is the CPU
time of all threads. Numbers are means per update, after a first one that connects and allocates.
A stall does not depend on the tokens of an update: with four times as many, it is a quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from publish import MODELS
from rich.console import Console
from rich.table import Table
from served import served
from torch import Tensor

from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import save_training
from ludic_train.cluster.background import BackgroundPublisher
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.publisher import PolicyPublisher
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem

ROW_TOKENS = 256


@dataclass(slots=True)
class Stopwatch:
    """Seconds of the blocks that it measured: by the clock, and of this thread's CPU time."""

    clock: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block."""
        clock, cpu = time.perf_counter(), time.thread_time()
        yield
        self.clock += time.perf_counter() - clock
        self.cpu += time.thread_time() - cpu


@dataclass(slots=True)
class TimedPublisher:
    """Publishes as another publisher does, and measures the calls."""

    publisher: PolicyPublisher | None
    watch: Stopwatch

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """As the other publisher; nothing without one."""
        if self.publisher is not None:
            with self.watch.running():
                await self.publisher.publish(params, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of all updates: of the trainer's thread, and CPU seconds of all threads."""

    update: Stopwatch
    push: Stopwatch
    save: Stopwatch
    process: float

    def cells(self, updates: int) -> list[str]:
        """Columns of the table, per update."""
        parts = [self.update.clock, self.push.clock, self.save.clock]
        stall, stall_cpu = self.push.clock + self.save.clock, self.push.cpu + self.save.cpu
        by_clock = [f"{s / updates:.2f}" for s in parts] + [f"{stall / self.update.clock:.1%}"]
        by_cpu = [f"{s / updates:.2f}" for s in (self.update.cpu, stall_cpu)]
        share = f"{stall_cpu / self.update.cpu:.1%}"
        return [*by_clock, *by_cpu, share, f"{self.process / updates:.2f}"]


async def measured(
    trainer: Trainer, publisher: PolicyPublisher | None, save: Callable[[], None], updates: int
) -> Times:
    """Times of `updates` updates. save: called after each."""
    whole, push, saving = Stopwatch(), Stopwatch(), Stopwatch()
    trainer.publisher = timed = TimedPublisher(publisher, push)
    await trainer.train(1)
    save()
    timed.watch = push = Stopwatch()
    process = time.process_time()
    for _ in range(updates):
        with whole.running():
            await trainer.train(1)
        with saving.running():
            save()
    process = time.process_time() - process
    update = Stopwatch(whole.clock - push.clock, whole.cpu - push.cpu)
    return Times(update=update, push=push, save=saving, process=process)


async def all_ways(args: argparse.Namespace, folder: Path) -> tuple[int, dict[str, Times]]:
    """Number of params, and times of each way."""
    tokenizer = make_tokenizer(["a b c"], vocab_size=4096)
    model = make_tiny_model(tokenizer, **MODELS[args.model])
    save_model(model, tokenizer, folder / "model")
    rng = np.random.default_rng(0)
    rows = [row(rng, len(tokenizer)) for _ in range(args.tokens // ROW_TOKENS)]
    trainer = Trainer(model, sft(), OfflineBatchSource(rows, batch_size=len(rows)))
    write = partial(save_model, model, tokenizer)
    found = {"neither": await measured(trainer, None, lambda: None, args.updates)}
    with ExitStack() as stack:
        urls = [stack.enter_context(served(folder / "model")) for _ in range(args.servers)]
        publisher = VLLMPublisher(urls, model=model)
        manager = CheckpointManager(folder / "waits", keep_last=1)
        save = partial(save_training, manager, trainer, write)
        found["waits"] = await measured(trainer, publisher, save, args.updates)
        away = BackgroundPublisher(VLLMPublisher(urls, model=model))
        saver = BackgroundSaver(CheckpointManager(folder / "overlaps", keep_last=1))
        with saver:
            save = partial(saver.save_training, trainer, write)
            found["overlaps"] = await measured(trainer, away, save, args.updates)
        await away.finish()
        await away.aclose()
    return sum(p.numel() for p in model.parameters()), found


def row(rng: np.random.Generator, vocabulary: int) -> SAWItem:
    """A row of random tokens, all but the first of which are trained on."""
    mask = np.arange(ROW_TOKENS) > 0
    return SAWItem(
        input_ids=rng.integers(3, vocabulary, ROW_TOKENS).astype(np.int32),
        action_mask=mask,
        weight=mask.astype(np.float32),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="100M")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1_024, help="of an update")
    parser.add_argument("--updates", type=int, default=3, help="measured, per way")
    parser.add_argument("--threads", type=int, default=1, help="of the trainer")
    parser.add_argument("--folder", type=Path, help="of checkpoints; left out, a temporary one")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    with TemporaryDirectory(dir=args.folder) as folder:
        params, found = asyncio.run(all_ways(args, Path(folder)))
    title = f"{params / 1e6:.0f}M params, {args.tokens} tokens, {args.servers} servers"
    columns = [
        "update s",
        "push s",
        "save s",
        "stall",
        "update CPU s",
        "stall CPU s",
        "stall of CPU",
    ]
    table = Table("", *columns, "process CPU s", title=title)
    for name, times in found.items():
        table.add_row(name, *times.cells(args.updates))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
