"""A trainer of two ranks that learns from a queue; run by torchrun with a folder and what happens.

"killed": rank 0, after its first update. "superseded": another trainer takes the queue over.
"quiet": no group comes for longer than ranks wait for each other.
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
from two_ranks.learning import random_rows, settings, tiny_model

from ludic_train.algorithms.presets import grpo
from ludic_train.pipeline.codec import group_to_bytes
from ludic_train.pipeline.group import SAWGroup
from ludic_train.pipeline.queues.base import TrainerReport
from ludic_train.pipeline.queues.sqlite import SQLiteQueue
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.trainer import trainer
from ludic_train.trainer.trainer import Trainer

UPDATES, GROUPS = 3, 2
RANKS_WAIT_S, QUIET_S = 6, 14


async def push(queue):
    """As many groups as the updates need."""
    for number in range(UPDATES * GROUPS):
        group = SAWGroup(key=f"g{number}", items=tuple(random_rows(4, seed=number)))
        await queue.push(group.key, group_to_bytes(group))


async def push_late(queue):
    """Push when the ranks have waited for too long already."""
    await asyncio.sleep(QUIET_S)
    await push(queue)


async def trained_params(queue, on_update=None):
    """All params in a row, after the updates."""
    cfg = settings()
    source = PipelineBatchSource(queue, groups_per_batch=GROUPS, cfg=cfg, max_lag=UPDATES)
    model = tiny_model()
    await Trainer(model, grpo(), source, cfg=cfg).train(UPDATES, on_update)
    await source.aclose()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def kill(version, metrics):
    """End rank 0 as a machine does that fails."""
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def supersede(path):
    """What takes the queue over, as another trainer would."""

    def on_update(version, metrics):
        if dist.get_rank() == 0 and version == 1:
            report = TrainerReport(version=0, groups_per_batch=GROUPS)
            taking = SQLiteQueue(path).take_over(report, kept="", held=0, released=0)
            # The loop of this thread runs already.
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, taking).result()

    return on_update


async def main(folder, happens):
    path = folder / "queue.sqlite3"
    queue = SQLiteQueue(path)
    if dist.get_rank() == 0 and happens == "quiet":
        late = asyncio.get_running_loop().create_task(push_late(queue))
        late.add_done_callback(asyncio.Task.result)
    elif dist.get_rank() == 0:
        await push(queue)
    dist.barrier()
    on_update = {"killed": kill, "superseded": supersede(path)}.get(happens)
    params = await trained_params(queue, on_update)
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(params.tolist()))


if __name__ == "__main__":
    HAPPENS, trainer.WORD_S = sys.argv[2], 1.0
    WAIT_S = RANKS_WAIT_S if HAPPENS == "quiet" else 600
    dist.init_process_group("gloo", timeout=timedelta(seconds=WAIT_S))
    asyncio.run(main(Path(sys.argv[1]), HAPPENS))
    dist.destroy_process_group()
