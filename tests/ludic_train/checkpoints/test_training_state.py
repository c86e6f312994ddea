"""Runs that are killed at some update go on as if nothing had happened."""

import asyncio
import os
import random
import socket
import subprocess
import time
from dataclasses import replace
from functools import partial

import forked
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from two_ranks.launch import ENVIRONMENT
from two_ranks.learning import random_rows, relative_error, settings, tiny_model, tokenizer

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo, ppo
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.checkpoints.layout import folder_name
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_shards, save_training
from ludic_train.errors import CheckpointError, Superseded
from ludic_train.models.load import save_model
from ludic_train.models.modules import VALUE_HEAD, unwrapped
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REWARDS

UPDATES = 8


def start(kind, out, ranks, updates=UPDATES):
    """One process per rank, as torchrun would start them, but each to be killed by its own id."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, **ENVIRONMENT}
    if ranks > 1:
        address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
        environment |= address
    return [
        forked.Python(
            ["-m", "two_ranks.resume", kind, str(out), str(updates)],
            env=environment | ({"RANK": str(rank)} if ranks > 1 else {}),
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]


def finish(processes):
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]


def kill_at(update, out, processes):
    """SIGKILL once that checkpoint is there or a later one."""
    while max(CheckpointManager(out / "checkpoints").steps(), default=0) < update:
        assert processes[0].poll() is None, processes[0].communicate()[1][-3000:]
        time.sleep(0.002)
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate()


KINDS = [
    ("full", 1),
    ("copies", 2),
    pytest.param("background lora", 1, marks=pytest.mark.slow),
    pytest.param("background pieces", 2, marks=pytest.mark.slow),
    pytest.param("tied", 1, marks=pytest.mark.slow),
    pytest.param("experts_pieces", 2, marks=pytest.mark.slow),
    pytest.param("experts", 2, marks=pytest.mark.slow),
    pytest.param("experts_lora", 2, marks=pytest.mark.slow),
    pytest.param("lora", 1, marks=pytest.mark.slow),
    pytest.param("pieces", 2, marks=pytest.mark.slow),
    pytest.param("background tied", 1, marks=pytest.mark.slow),
    pytest.param("background shards", 2, marks=pytest.mark.slow),
    pytest.param("shards", 2, marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "ranks"), KINDS)
def test_a_run_killed_at_any_update_goes_on_bit_for_bit(kind, ranks, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    straight.mkdir()
    killed.mkdir()
    finish(start(kind, straight, ranks))
    kill_at(random.randint(1, UPDATES - 4), killed, start(kind, killed, ranks))
    assert not (killed / "final.safetensors").exists()
    finish(start(kind, killed, ranks))
    expected = load_file(straight / "final.safetensors")
    found = load_file(killed / "final.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    if kind.endswith(("shards", " pieces")) or kind == "pieces":
        go_on_alone(straight, killed, expected)


@pytest.mark.parametrize(
    ("alone", "together"),
    [("tied", "pieces"), pytest.param("lora", "lora_pieces", marks=pytest.mark.slow)],
)
def test_a_run_of_one_process_goes_on_with_two(alone, together, tmp_path):
    straight, grown = tmp_path / "straight", tmp_path / "grown"
    straight.mkdir()
    grown.mkdir()
    finish(start(alone, straight, ranks=1))
    finish(start(alone, grown, ranks=1, updates=UPDATES // 2))
    finish(start(together, grown, ranks=2))
    expected = load_file(straight / "final.safetensors")
    found = load_file(grown / "final.safetensors")
    assert found.keys() == expected.keys()
    assert all(relative_error(found[name], expected[name]) < 1e-5 for name in expected)


def go_on_alone(straight, killed, expected):
    """Two ranks' checkpoint of an earlier update, gone on with by one process."""
    manager = CheckpointManager(killed / "checkpoints")
    trainer = new_trainer()
    resume_training(manager, trainer, manager.directory / folder_name(UPDATES - 1))
    asyncio.run(trainer.train(1))
    params = dict(trainer.model.named_parameters())
    for name, param in expected.items():
        assert relative_error(params[name], param) < 1e-5


def new_trainer():
    source = OfflineBatchSource(random_rows(20), batch_size=8, seed=1)
    return Trainer(tiny_model(), grpo(), source, cfg=settings(60))


def save(manager, trainer, **options):
    save_training(manager, trainer, partial(save_model, trainer.model, tokenizer()), **options)


async def test_random_numbers_and_what_the_caller_adds_come_back(tmp_path):
    manager, trainer = CheckpointManager(tmp_path), new_trainer()
    await trainer.train(1)
    save(manager, trainer, extra={"stage": 3})
    expected = torch.rand(3)
    assert resume_training(manager, new_trainer()) == {"stage": 3}
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("more", [{"epochs": 2}, {"minibatches": 2}])
async def test_a_save_inside_a_batch_is_refused(tmp_path, more):
    source = OfflineBatchSource(random_rows(20), batch_size=8, seed=1)
    trainer = Trainer(tiny_model(), grpo(), source, cfg=replace(settings(60), **more))
    managers, refused = [CheckpointManager(tmp_path / name) for name in "ab"], []

    def on_update(version, metrics):
        writers = partial(save, managers[0], trainer), partial(save_shards, managers[1], trainer)
        for write in writers:
            try:
                write()
            except CheckpointError as error:
                refused.append(str(error))

    await trainer.train(2, on_update)
    assert len(refused) == 2
    assert all("version 1 is inside a batch, of which 1 updates are left" in e for e in refused)
    assert [manager.steps() for manager in managers] == [[2], [2]]


def lora_model(seed=0, rank=2):
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, target_modules=["q_proj"], task_type="CAUSAL_LM")
    return get_peft_model(tiny_model(), config)


@pytest.mark.parametrize("make_model", [tiny_model, lora_model])
async def test_a_value_head_goes_on_too(make_model, tmp_path):
    def with_critic(seed):
        model = make_model(seed)
        add_value_head(model)
        rows = [replace(row, attachments={REWARDS: row.weight}) for row in random_rows(8)]
        source = OfflineBatchSource(rows, batch_size=8)
        return Trainer(model, ppo(), source, cfg=settings())

    manager, straight, again = CheckpointManager(tmp_path), with_critic(0), with_critic(1)
    await straight.train(2)
    save(manager, straight)
    resume_training(manager, again)
    await straight.train(2)
    await again.train(2)
    # In no file of a model: an engine that loads one knows no such param.
    files = manager.load().model_dir.glob("*.safetensors")
    assert not [name for file in files for name in load_file(file) if VALUE_HEAD in name]
    assert unwrapped(again.model).value_head.weight.abs().sum() > 0
    for a, b in zip(straight.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


async def test_adapters_of_another_rank_are_refused(tmp_path):
    def with_rank(rank):
        source = OfflineBatchSource(random_rows(8), batch_size=8)
        return Trainer(lora_model(rank=rank), grpo(), source, cfg=settings())

    manager, trainer = CheckpointManager(tmp_path), with_rank(2)
    await trainer.train(1)
    save(manager, trainer)
    with pytest.raises(ConfigError, match="lora_"):
        resume_training(manager, with_rank(4))


async def test_params_that_are_cut_are_named_as_damaged(tmp_path):
    manager, trainer = CheckpointManager(tmp_path), new_trainer()
    await trainer.train(1)
    save(manager, trainer)
    os.truncate(manager.load().model_dir / "model.safetensors", 900)
    with pytest.raises(CheckpointError, match="step_00000001 is damaged"):
        resume_training(manager, new_trainer())


async def test_a_trainer_that_begins_anew_keeps_the_one_before_from_its_first_checkpoint(tmp_path):
    (elders, elder), (manager, younger) = (
        (CheckpointManager(tmp_path), new_trainer()) for _ in range(2)
    )
    for each, trainer in ((elders, elder), (manager, younger)):
        assert resume_training(each, trainer) is None
        await trainer.train(1)
    with pytest.raises(Superseded):
        save(elders, elder)
    save(manager, younger)
    assert manager.steps() == [1]
