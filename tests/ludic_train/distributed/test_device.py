"""Device, precision and the group of one process."""

import os
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo
from ludic_train.distributed import device as device_module
from ludic_train.distributed.device import (
    on_device,
    process_group,
    resolved_device,
    resolved_precision,
)
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.trainer.trainer import Trainer


@pytest.fixture
def cards(monkeypatch):
    """`cards(n, local_rank)`: a machine that has so many."""

    def have(count, local_rank=None):
        monkeypatch.setattr(device_module.torch.cuda, "device_count", lambda: count)
        monkeypatch.delenv("LOCAL_RANK", raising=False)
        if local_rank is not None:
            monkeypatch.setenv("LOCAL_RANK", str(local_rank))

    return have


@pytest.mark.parametrize(
    ("name", "count", "local_rank", "found"),
    [
        ("auto", 0, None, "cpu"),
        ("auto", 0, 3, "cpu"),
        ("auto", 4, None, "cuda:0"),
        ("auto", 4, 3, "cuda:3"),
        ("cpu", 4, 3, "cpu"),
        ("cuda", 4, 2, "cuda:2"),
        ("cuda:1", 4, None, "cuda:1"),
        ("cuda:1", 4, 1, "cuda:1"),
    ],
)
def test_a_process_gets_the_card_of_its_local_rank(cards, name, count, local_rank, found):
    cards(count, local_rank)
    assert resolved_device(name) == found


@pytest.mark.parametrize(
    ("name", "count", "local_rank", "reason"),
    [
        ("gpu", 1, None, "device='gpu'"),
        ("cuda", 0, None, "needs card 0, and torch finds 0"),
        ("auto", 2, 2, "needs card 2, and torch finds 2"),
        ("cuda:1", 2, 0, "one card, and this is rank 0"),
    ],
)
def test_a_card_that_cannot_be_had_is_an_error(cards, name, count, local_rank, reason):
    cards(count, local_rank)
    with pytest.raises(ConfigError, match=reason):
        resolved_device(name)


def test_auto_is_bf16_on_a_card_and_float32_on_a_cpu():
    assert resolved_precision("auto", "cuda:1") == "bf16"
    assert resolved_precision("auto", "cpu") == "float32"
    assert resolved_precision("bf16", "cpu") == "bf16"


def test_a_card_is_chosen_and_tf32_is_on_for_the_block_alone(cards, monkeypatch):
    cards(2, 1)
    chosen, before = [], torch.get_float32_matmul_precision()
    monkeypatch.setattr(device_module.torch.cuda, "set_device", chosen.append)
    with on_device("auto") as device:
        assert (device, chosen) == ("cuda:1", ["cuda:1"])
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    with on_device("cpu"):
        assert torch.get_float32_matmul_precision() == before


@pytest.fixture
def alone():
    """A group of this process."""
    assert "WORLD_SIZE" not in os.environ
    with process_group("cpu") as device:
        assert device == "cpu"
        yield
    assert not dist.is_initialized()


def test_params_that_stay_on_the_host_learn_what_others_learn(alone):
    models = [shard_model(tiny_model(), offload=offload) for offload in (False, True)]
    for model in models:
        trainer = Trainer(model, grpo(), None, cfg=settings())
        trainer.update(random_rows(9))
        moments = [state["exp_avg"] for state in trainer.optimizer.state.values()]
        assert {moment.device.type for moment in moments} == {"cpu"}
    for (name, one), (_, two) in zip(*(whole_params(model) for model in models), strict=True):
        assert torch.equal(one, two), name


def test_one_process_computes_in_bf16_over_float32_params(alone):
    items = random_rows(9)
    expected, _ = gradient_of(items, settings())
    found, _ = gradient_of(
        items, settings(), shard=lambda model: shard_model(model, param_dtype=torch.bfloat16)
    )
    # Rounding to 8 bits moves a gradient by a percent or two.
    assert 1e-4 < relative_error(found, expected) < 0.05


def test_a_step_that_bf16_would_round_away_is_kept(alone):
    model = shard_model(tiny_model(), param_dtype=torch.bfloat16)
    before = {name: param.clone() for name, param in whole_params(model)}
    trainer = Trainer(model, grpo(), None, cfg=replace(settings(), lr=1e-6))
    trainer.update(random_rows(9))
    moved = {name: param - before[name] for name, param in whole_params(model)}
    # A first step of AdamW moves params by lr, and 8 bits of a norm's 1.0 end at 4e-3.
    norm = moved["model.norm.weight"]
    assert 0 < norm.abs().max() < 2e-6
    assert all(
        state["exp_avg"].dtype == torch.float32 for state in trainer.optimizer.state.values()
    )
