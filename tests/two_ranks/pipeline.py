"""A trainer of two ranks that learns from a queue; run by torchrun with a folder."""

import asyncio
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from two_ranks.learning import random_rows, settings, tiny_model

from ludic_train.algorithms import make_grpo
from ludic_train.group_wire import group_to_bytes
from ludic_train.groups import SAWGroup
from ludic_train.queues import SpoolQueue
from ludic_train.sources import PipelineBatchSource
from ludic_train.trainer import Trainer

UPDATES, GROUPS = 3, 2


async def push(queue):
    """As many groups as the updates need."""
    for number in range(UPDATES * GROUPS):
        group = SAWGroup(key=f"g{number}", items=tuple(random_rows(4, seed=number)))
        await queue.push(group.key, group_to_bytes(group))


async def trained_params(queue):
    """All params in a row, after the updates."""
    cfg = settings()
    source = PipelineBatchSource(queue, groups_per_batch=GROUPS, cfg=cfg, max_lag=UPDATES)
    model = tiny_model()
    await Trainer(model, make_grpo(), source, cfg=cfg).train(UPDATES)
    await source.aclose()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


async def main(folder):
    queue = SpoolQueue(folder / "queue.sqlite3")
    rank = dist.get_rank()
    if rank == 0:
        await push(queue)
    dist.barrier()
    params = await trained_params(queue)
    (folder / f"{rank}.json").write_text(json.dumps(params.tolist()))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(main(Path(sys.argv[1])))
    dist.destroy_process_group()
