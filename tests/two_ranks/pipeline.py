"""A trainer of two ranks that learns from a queue; run by torchrun with a folder and what happens.

"killed": rank 0, after its first update. "superseded": another trainer takes the queue over.
"slow": rank 0 takes longer than ranks wait for each other, to get a batch, to publish, and to
evaluate (before training and between two calls of `train`), with a model in shards.
"""

import asyncio
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from two_ranks.learning import random_group, settings, tiny_model

from ludic_train.algorithms.presets import grpo
from ludic_train.cluster.codec import group_to_bytes
from ludic_train.cluster.queues.base import TrainerReport
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.trainer.trainer import Trainer

UPDATES, GROUPS = 3, 2
RANKS_WAIT_S, SLOW_S = 3, 4


async def push(queue):
    """As many groups as the updates need."""
    for number in range(UPDATES * GROUPS):
        group = random_group(f"g{number}", 4, seed=number)
        await queue.push(group.key, group_to_bytes(group))


async def push_late(queue):
    """Push when the ranks have waited for too long already, after the first evaluation."""
    await asyncio.sleep(2 * SLOW_S)
    await push(queue)


class SlowPublisher:
    """Takes its time in the middle of the params of one version."""

    def __init__(self, version):
        self.version, self.published = version, []

    async def publish(self, params, version):
        for number, _ in enumerate(params):
            if number == 1 and version == self.version:
                await asyncio.sleep(SLOW_S)
        self.published.append(version)


async def trained_params(queue, *, on_update=None, publisher=None, shard=lambda model: model):
    """All params in a row, after the updates; the first two are made in a call of their own."""
    source = PipelineBatchSource(queue, groups_per_batch=GROUPS, group_size=4)
    model = shard(tiny_model())
    trainer = Trainer(model, grpo(max_lag=UPDATES), source, publisher, settings())
    for updates in (UPDATES - 1, 1):
        if publisher is not None and dist.get_rank() == 0:
            # Stands for an evaluation, which only rank 0 makes.
            await asyncio.sleep(SLOW_S)
        await trainer.train(updates, on_update)
    await source.aclose()
    return torch.cat([param.flatten() for _, param in whole_params(model)])


def kill(version, metrics):
    """End rank 0 as a machine does that fails."""
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def supersede(path):
    """Take the queue over, as another trainer would."""

    def on_update(version, metrics):
        if dist.get_rank() == 0 and version == 1:
            report = TrainerReport(version=0, groups_per_batch=GROUPS, group_size=4)
            taking = SQLiteQueue(path).take_over(report, kept="", total=0)
            # The loop of this thread runs already.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, taking).result()

    return on_update


async def main(folder, happens):
    path = folder / "queue.sqlite3"
    queue, options = SQLiteQueue(path), {}
    if happens == "slow":
        options = {"publisher": SlowPublisher(version=1), "shard": shard_model}
    if dist.get_rank() == 0 and happens == "slow":
        late = asyncio.get_running_loop().create_task(push_late(queue))
        late.add_done_callback(asyncio.Task.result)
    elif dist.get_rank() == 0:
        await push(queue)
    dist.barrier()
    on_update = {"killed": kill, "superseded": supersede(path)}.get(happens)
    params = await trained_params(queue, on_update=on_update, **options)
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(params.tolist()))


if __name__ == "__main__":
    HAPPENS = sys.argv[2]
    WAIT_S = RANKS_WAIT_S if HAPPENS == "slow" else 600
    dist.init_process_group("gloo", timeout=timedelta(seconds=WAIT_S))
    asyncio.run(main(Path(sys.argv[1]), HAPPENS))
    dist.destroy_process_group()
