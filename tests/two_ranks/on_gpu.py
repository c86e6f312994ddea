"""Run by torchrun on CUDA devices: shards in bfloat16 against one process in float32."""

import json
import os
import sys
from functools import partial

import torch
import torch.distributed as dist
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model

from ludic_train.algorithms.presets import grpo
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.distributed.ranks import rank
from ludic_train.trainer.trainer import Trainer


def on_device(shard, device):
    return lambda model: shard(model.to(device))


def params_after_5_updates(shard, cfg):
    model = shard(tiny_model())
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    for update in range(5):
        trainer.update(random_rows(16, seed=update) if rank() == 0 else [])
    return torch.cat([p.flatten().cpu() for _, p in whole_params(model)])


def main(out, expected):
    dist.init_process_group("cpu:gloo,cuda:nccl")
    device = f"cuda:{dist.get_rank()}"
    torch.cuda.set_device(device)
    cfg = settings(100, device=device)
    data = torch.load(expected, weights_only=True)
    items = random_rows(24, seed=5) if dist.get_rank() == 0 else []
    found = {}
    for name, dtype in {"float32": None, "bfloat16": torch.bfloat16}.items():
        shard = on_device(partial(shard_model, param_dtype=dtype), device)
        gradient, _ = gradient_of(items, cfg, shard=shard)
        params = params_after_5_updates(shard, cfg)
        found[name] = {
            "gradient": relative_error(gradient.cpu(), data["gradient"]),
            "params": relative_error(params, data["params"]),
        }
    if dist.get_rank() == 0:
        with open(out, "w") as file:
            json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
