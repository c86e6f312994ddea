"""Run as ranks: rows that they share, and copies of a sharded model, against one process.

Two ranks make the first cases alone, four make all.
"""

import json
import os
import sys
from functools import partial
from itertools import cycle, product
from pathlib import Path

import torch
import torch.distributed as dist
from two_ranks.invariance import (
    one_process_gradient,
    params_after_5_updates,
    process_group,
    sharded_with_checkpoints,
)
from two_ranks.learning import (
    Fixed,
    gradient_of,
    random_rows,
    relative_error,
    settings,
    tiny_mixture,
    tiny_model,
    with_teacher,
)

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo, gspo, top_k_distillation
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_shards
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.errors import UnsupportedModel
from ludic_train.models.attention import share_rows
from ludic_train.trainer.config import Execution
from ludic_train.trainer.prepare import scored
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import PROXIMAL, VALUES

twice = partial(shard_model, replicas=2)
SHARDS = {
    "copies": lambda model: model,
    "shards": shard_model,
    "checkpoints": sharded_with_checkpoints,
    "twice": twice,
}
ALGOS = {"grpo": grpo, "gspo": gspo, "teacher": top_k_distillation}


def context_cases(world):
    """Name, ranks per row, rows, algorithm and sharding of each case for so many ranks."""
    shards = cycle(SHARDS)
    cases = product([2, 4], ALGOS) if world == 4 else [(2, "grpo"), (2, "gspo")]
    for seed, (ranks, algo) in enumerate(cases):
        rows = random_rows(11, seed=seed, masked=0.2, cut=algo != "teacher")
        rows = with_teacher(rows) if algo == "teacher" else rows
        sharding = next(shards)
        yield f"{ranks} {algo} {sharding}", ranks, rows, ALGOS[algo](), SHARDS[sharding]


def mine(items):
    return items if dist.get_rank() == 0 else []


def with_context():
    """Errors of gradients, and metrics, where ranks share rows."""
    errors, metrics = {}, {}
    for name, ranks, rows, algo, shard in context_cases(dist.get_world_size()):
        cfg = settings(60, context_parallel=ranks)
        found, made = gradient_of(mine(rows), cfg, algo, shard=shard)
        errors[name] = relative_error(found, one_process_gradient(rows, algo=algo))
        metrics[name] = {key: made[key].value for key in ("loss", "entropy", "tokens/trained")}
    return errors, metrics


def a_mixture():
    """Error of the gradient of a mixture of experts where two ranks share rows."""
    rows = random_rows(7, seed=9)
    found, _ = gradient_of(
        mine(rows), settings(60, context_parallel=2), shard=shard_model, model=tiny_mixture()
    )
    return relative_error(found, one_process_gradient(rows, tiny_mixture()))


def attached():
    """Log-probs and values that ranks computed of shared rows."""
    model, rows = tiny_model(), random_rows(9, masked=0.3)
    add_value_head(model)
    share_rows(shard_model(model), 2)
    execution = Execution(packing=False, share_prompts=False, context_parallel=2)
    names = frozenset({PROXIMAL, VALUES})
    found = scored(mine(rows), model, names, settings(60), execution=execution)
    return [{n: item.attachments[n].tolist() for n in names} for item in found]


def resumed_params(folder):
    """Params after an update of a run that copies saved in shards, by shards of other ranks."""
    manager = CheckpointManager(folder)
    made = Trainer(twice(tiny_model()), grpo(), Fixed([]), cfg=settings())
    made.update(mine(random_rows(9)))
    save_shards(manager, made)
    params = []
    for shard in (twice, shard_model):
        again = Trainer(shard(tiny_model(seed=1)), grpo(), Fixed([]), cfg=settings())
        resume_training(manager, again)
        again.update(mine(random_rows(9, seed=1)))
        params.append(torch.cat([p.flatten() for _, p in whole_params(again.model)]).tolist())
    return params


def error_of(work):
    try:
        work()
    except (ConfigError, UnsupportedModel) as error:
        return f"{type(error).__name__}: {error}"


def refusals():
    windows = tiny_model()
    for layer in windows.get_decoder().layers:
        layer.self_attn.sliding_window = 4
    one_row = mine(random_rows(2))
    shared = settings(context_parallel=2)
    return {
        "replicas": error_of(lambda: shard_model(tiny_model(), replicas=3)),
        "ranks": error_of(lambda: share_rows(tiny_model(), 3)),
        "window": error_of(lambda: Trainer(windows, grpo(), None, cfg=shared).update(one_row)),
    }


def main(out):
    with process_group():
        errors, metrics = with_context()
        found = {"errors": errors, "metrics": metrics}
        if dist.get_world_size() == 4:
            found |= {
                "mixture": a_mixture(),
                "attached": attached(),
                "twice": params_after_5_updates(twice).tolist(),
                "resumed": resumed_params(Path(out, "checkpoints")),
                "refusals": refusals(),
            }
        rank = dist.get_rank()
    with open(f"{out}/{rank}.json", "w") as file:
        json.dump(found, file)
    # gloo's threads may abort while the interpreter takes itself apart; nothing is left to do.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
