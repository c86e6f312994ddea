import shutil
from dataclasses import replace

import pytest
import torch
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo
from ludic_train.distributed import fsdp
from ludic_train.distributed.device import process_group
from ludic_train.distributed.fsdp import (
    checkpoint_activations,
    compile_blocks,
    shard_model,
    units,
    whole_params,
)
from ludic_train.models.modules import blocks
from ludic_train.trainer.trainer import Trainer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what torch warns of while compiling is its own
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiling_changes_no_gradient():
    items = random_rows(9)
    model = tiny_model()
    compile_blocks(model)
    expected, _ = gradient_of(items, settings())
    found, _ = gradient_of(items, settings(60), model=model)
    assert relative_error(found, expected) < 1e-5


def test_sharding_needs_other_processes():
    with pytest.raises(ConfigError, match="torchrun"):
        shard_model(tiny_model())


BLOCK = sum(param.numel() for param in blocks(tiny_model())[0].parameters())


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1, 1]), (2 * BLOCK - 1, [1, 1]), (2 * BLOCK, [2])]
)
def test_small_blocks_are_gathered_together(monkeypatch, most, sizes):
    monkeypatch.setattr(fsdp, "UNIT_PARAMS", most)
    model = tiny_model()
    found = units(model)
    assert [len(unit) for unit in found] == sizes
    assert [block for unit in found for block in unit] == blocks(model)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("most", [1, 2**26])
def test_units_of_any_size_have_the_gradient_of_the_whole_model(monkeypatch, most, recompute):
    monkeypatch.setattr(fsdp, "UNIT_PARAMS", most)

    def sharded(model):
        if recompute:
            checkpoint_activations(model)
        return shard_model(model)

    items = random_rows(9)
    expected, _ = gradient_of(items, settings())
    with process_group("cpu"):
        found, _ = gradient_of(items, settings(60), shard=sharded)
    assert relative_error(found, expected) < 1e-6


def learned(shard):
    """Params after four updates, of which the second is clipped."""
    model = shard(tiny_model())
    trainer = Trainer(model, grpo(), None, cfg=settings())
    for seed in range(4):
        trainer.cfg = replace(settings(), max_grad_norm=0.01 if seed == 1 else 1e9)
        trainer.update(random_rows(9, seed=seed))
    return [param.clone() for _, param in whole_params(model)]


def test_steps_of_shards_are_those_of_whole_params_to_the_bit():
    expected = learned(lambda model: model)
    with process_group("cpu"):
        found = learned(shard_model)
    assert all(map(torch.equal, found, expected))
