"""Run by torchrun: how far the gradients and params of two ranks are from those of one."""

import asyncio
import json
import os
import resource
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from two_ranks.learning import (
    MOST_TOKENS,
    Fixed,
    gradient_of,
    off,
    random_rows,
    relative_error,
    sampled_by,
    settings,
    tiny_mixture,
    tiny_model,
    with_experts,
    with_few_prompts,
    with_teacher,
)

from ludic_train.algorithms.presets import grpo, sft, top_k_distillation
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import save_shards
from ludic_train.distributed.fsdp import checkpoint_activations, shard_model, whole_params
from ludic_train.errors import CheckpointError, LossError, RankError
from ludic_train.trainer.config import AdamW, Execution, Guards
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.prepare import scored
from ludic_train.trainer.step import forward, loss_batch, replayed
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import PROXIMAL


def one_process_gradient(items, model=None, router_replay=False, algo=None):
    """The same update in one forward pass, without any other rank."""
    model, algo = model or tiny_model(), algo or grpo()
    loss = algo.loss
    ((micro_batch,),) = plan_update(
        items,
        token_budget=10_000,
        packing=False,
        aggregation=algo.aggregation,
        router_replay=router_replay,
    )
    with replayed(model, micro_batch):
        loss(forward(model, micro_batch), loss_batch(micro_batch, 0))[0].backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def sharded_with_checkpoints(model):
    checkpoint_activations(model)
    return shard_model(model)


SHARDINGS = {"copies": lambda model: model, "shards": shard_model, "both": sharded_with_checkpoints}


def gradient_errors():
    errors = {}
    batches = [(1, 0.0), (7, 0.5), (24, 0.0), (24, 1.0)]
    # 12 of the 48 combinations, among which every two values of two factors meet.
    for k, (i, j) in enumerate(product(range(len(SHARDINGS)), range(len(batches)))):
        sharding, (count, masked) = list(SHARDINGS)[i], batches[j]
        budget, flag = [MOST_TOKENS, 100][(i + j) % 2], (i + j // 2) % 2
        items = random_rows(count, seed=k, masked=masked, cut=True)
        if k % 3:
            items = with_few_prompts(items, prompts=k % 3, seed=k)
        cfg = settings(budget, packing=bool(flag))
        mine = items if dist.get_rank() == 0 else []
        found, metrics = gradient_of(mine, cfg, shard=SHARDINGS[sharding])
        expected = one_process_gradient(items)
        errors[f"{sharding} {count} {masked} {budget} {flag}"] = relative_error(found, expected)
        assert metrics["rows"].value == count
    return errors


def mixture_errors():
    """Of the gradients of mixtures of experts, against one process without packing."""
    errors = {}
    for kind, lora in product(["qwen3_moe", "mixtral"], [False, True]):
        items = with_experts(random_rows(24, seed=3))
        mine = items if dist.get_rank() == 0 else []
        for flag, shard in enumerate([shard_model, sharded_with_checkpoints]):
            # With checkpoints, the backward pass goes through the routers once more.
            expected = one_process_gradient(items, tiny_mixture(kind, lora), bool(flag))
            cfg = settings(100)
            cfg = replace(cfg, router_replay=bool(flag))
            found, _ = gradient_of(mine, cfg, shard=shard, model=tiny_mixture(kind, lora))
            errors[f"{kind} lora={lora} {shard.__name__}"] = relative_error(found, expected)
    return errors


def taught_errors():
    """Of the gradients of rows with a teacher's tokens, against one process without packing."""
    errors, algo = {}, top_k_distillation()
    for sharding, count in product(SHARDINGS, [1, 24]):
        items = with_teacher(random_rows(count, seed=count))
        mine = items if dist.get_rank() == 0 else []
        found, _ = gradient_of(mine, settings(60), algo, shard=SHARDINGS[sharding])
        expected = one_process_gradient(items, algo=algo)
        errors[f"{sharding} {count}"] = relative_error(found, expected)
    return errors


def bfloat16_error():
    """Of the gradient of blocks that compute in bfloat16, against one process in float32."""
    items = random_rows(24, seed=5)
    mine = items if dist.get_rank() == 0 else []
    low = partial(shard_model, param_dtype=torch.bfloat16)
    found, _ = gradient_of(mine, settings(100), shard=low)
    assert found.dtype == torch.float32
    return relative_error(found, one_process_gradient(items))


def params_after_5_updates(shard):
    model = shard(tiny_model())
    made = Trainer(model, grpo(), None, cfg=settings(100))
    for update in range(5):
        items = random_rows(16, seed=update)
        made.update(items if dist.is_initialized() is False or dist.get_rank() == 0 else [])
    return torch.cat([p.flatten() for _, p in whole_params(model)])


def change_of_a_tower(shard):
    """Largest change of params that no log-prob reads, by two updates with weight decay."""
    model = tiny_model()
    model.tower = torch.nn.Linear(8, 8, bias=False)
    torch.nn.init.ones_(model.tower.weight)
    model = shard(model)
    cfg = replace(settings(100), adamw=AdamW(weight_decay=0.5))
    made = Trainer(model, grpo(), None, cfg=cfg)
    for update in range(2):
        items = random_rows(8, seed=update)
        made.update(items if dist.get_rank() == 0 else [])
    (tower,) = (p for name, p in whole_params(model) if "tower" in name)
    return float((tower - 1).abs().max())


def params_beside_liars(shard, *, liars):
    """Params after an update from eleven honest groups and one of another sampler, or without."""
    model, rows = shard(tiny_model()), sampled_by(tiny_model(), random_rows(24, seed=7))
    kept = [off(row) if row.group == "g1" else row for row in rows]
    kept = kept if liars else [row for row in rows if row.group != "g1"]
    mine = kept if not dist.is_initialized() or dist.get_rank() == 0 else []
    Trainer(model, grpo(), None, cfg=replace(settings(100), guards=Guards())).update(mine)
    return torch.cat([p.flatten() for _, p in whole_params(model)])


def attached_values():
    """Log-probs that both ranks computed, put back into the rows of rank 0."""
    model, items = shard_model(tiny_model()), random_rows(9, masked=0.3)
    mine = items if dist.get_rank() == 0 else []
    names = frozenset({PROXIMAL})
    found = scored(mine, model, names, settings(60), execution=Execution(), top_k=2)
    tops = [[item.teacher.ids.tolist(), item.teacher.logprobs.tolist()] for item in found]
    return [item.attachments[PROXIMAL].tolist() for item in found], tops


def save_at_once(manager, made):
    save_shards(manager, made)


def save_in_background(manager, made):
    with BackgroundSaver(manager) as saver:
        saver.save_shards(made)


def what_is_said_of_a_part_that_cannot_be_written(save, folder):
    """The error of a save of which rank 1 may write no file of more than 500 bytes."""
    made = Trainer(shard_model(tiny_model()), grpo(), NoSource(), cfg=settings())
    manager = CheckpointManager(folder)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, usual[1]))
    try:
        save(manager, made)
    except CheckpointError as error:
        return f"{error}; {manager.steps()}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def what_is_said_of_a_folder_that_cannot_be_made(out):
    """On each rank, where only rank 0 makes it."""
    Path(out, "file").write_text("")
    made = Trainer(tiny_model(), grpo(), NoSource(), cfg=settings())
    try:
        save_shards(CheckpointManager(f"{out}/file/checkpoints"), made)
    except (CheckpointError, RankError) as error:
        return f"{type(error).__name__}: {error}"


class NoSource:
    def state_dict(self):
        return {}


class Failing(Fixed):
    """A source, and a publisher, of which one method fails; only rank 0 calls them."""

    def __init__(self, method):
        super().__init__(random_rows(4))
        self.method = method

    def fail_in(self, method):
        if method == self.method:
            raise OSError(f"no {method}")

    def claim(self):
        self.fail_in("claim")

    async def begin(self, pace):
        self.fail_in("begin")

    async def trained(self, version):
        # Before the first batch there is nothing to note.
        if version:
            self.fail_in("trained")

    async def next_batch(self, algo):
        self.fail_in("batch")
        return await super().next_batch(algo)

    async def publish(self, params, version):
        next(iter(params))
        if version:
            self.fail_in("publication")


def failing_refine(items):
    raise LossError("no credit")


def error_of(work):
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def failures():
    """Errors of work that fails on rank 0 alone; all ranks go on with other work after each."""
    said = {}
    for method, sharding in product(["begin", "batch", "trained", "publication"], SHARDINGS):
        # Other ranks have neither source nor publisher.
        ends = Failing(method) if dist.get_rank() == 0 else None
        model = SHARDINGS[sharding](tiny_model())
        made = Trainer(model, sft(), ends, ends, settings())
        said[f"{method} {sharding}"] = error_of(lambda made=made: asyncio.run(made.train(2)))
        made.update(random_rows(4))
    algorithms = {"update": sft(), "refine": sft(refine=failing_refine)}
    for name, algo in algorithms.items():
        made = Trainer(tiny_model(), algo, None, cfg=settings())
        items = random_rows(2) if name == "refine" else []
        said[name] = error_of(lambda made=made, items=items: made.update(items))
    return said


@contextmanager
def process_group():
    dist.init_process_group("gloo")
    yield
    dist.barrier()
    dist.destroy_process_group()


def main(out):
    with process_group():
        found = {
            "gradients": gradient_errors(),
            "attached": attached_values(),
            "copies": params_after_5_updates(SHARDINGS["copies"]).tolist(),
            "shards": params_after_5_updates(shard_model).tolist(),
            "beside_liars": params_beside_liars(shard_model, liars=True).tolist(),
            "towers": [change_of_a_tower(shard) for shard in (SHARDINGS["copies"], shard_model)],
            "bfloat16": bfloat16_error(),
            "mixtures": mixture_errors(),
            "taught": taught_errors(),
            "unwritten": [
                what_is_said_of_a_part_that_cannot_be_written(save, f"{out}/checkpoints")
                for save in (save_at_once, save_in_background)
            ],
            "unmade": what_is_said_of_a_folder_that_cannot_be_made(out),
            "errors": failures(),
            "rank": dist.get_rank(),
        }
    with open(f"{out}/{found['rank']}.json", "w") as file:
        json.dump(found, file)
    # gloo's threads may abort while the interpreter takes itself apart; nothing is left to do.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
