"""Run by torchrun or alone: train, save every update, go on if there is something to go on from."""

import asyncio
import copy
import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM
from two_ranks.learning import random_rows, settings, tiny_mixture, tiny_model, tokenizer

from ludic_train.algorithms.presets import grpo
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_shards, save_training
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.models.load import save_model
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer


def untied_model():
    config = copy.deepcopy(tiny_model().config)
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config)


def lora_model():
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(tiny_model(), config)


MODELS = {
    "tied": tiny_model,
    "full": untied_model,
    "lora": lora_model,
    "shards": lambda: shard_model(tiny_model()),
    "pieces": lambda: shard_model(tiny_model()),
    "lora_pieces": lambda: shard_model(lora_model()),
    "copies": tiny_model,
    "experts": lambda: shard_model(tiny_mixture()),
    "experts_pieces": lambda: shard_model(tiny_mixture("mixtral")),
    "experts_lora": lambda: shard_model(tiny_mixture(lora=True)),
}


async def train(kind, out, updates):
    how, _, name = kind.rpartition(" ")
    model = MODELS[name]()
    source = OfflineBatchSource(random_rows(20), batch_size=8, seed=1)
    trainer = Trainer(model, grpo(), source, cfg=settings(60))
    manager = CheckpointManager(out / "checkpoints")
    resume_training(manager, trainer, "auto")
    write = partial(save_model, model, tokenizer())
    with BackgroundSaver(manager) as saver:
        saves = {
            ("", True): lambda: save_shards(manager, trainer),
            ("", False): lambda: save_training(manager, trainer, write),
            ("background", True): lambda: saver.save_shards(trainer),
            ("background", False): lambda: saver.save_training(trainer, write),
        }
        while trainer.version < updates:
            await trainer.train(1)
            saves[how, "pieces" in name]()
    params = {name: param.clone() for name, param in whole_params(model)}
    if not dist.is_initialized() or dist.get_rank() == 0:
        save_file(params, out / "final.safetensors")


def main(kind, out, updates):
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    asyncio.run(train(kind, Path(out), int(updates)))
    if distributed:
        # Whoever leaves first must not find the other in the middle of an exchange, nor gloo's
        # threads running while the interpreter takes itself apart: that aborts now and then.
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
