"""Checkpoints that are written while training goes on."""

from contextlib import nullcontext
from functools import partial
from threading import Event

import pytest
import torch
from two_ranks.learning import random_rows, settings, tiny_model, tokenizer

from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints import async_saver
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.sharded import write_shards
from ludic_train.checkpoints.training_state import resume_training
from ludic_train.errors import CheckpointError
from ludic_train.models.load import load_params, save_model
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer


def new_trainer():
    source = OfflineBatchSource(random_rows(8), batch_size=8)
    return Trainer(tiny_model(), sft(), source, cfg=settings())


def params_of(trainer):
    return {name: param.detach().clone() for name, param in trainer.model.named_parameters()}


def equal(found, expected):
    return all(torch.equal(found[name], expected[name]) for name in expected)


def whole_when_allowed(saver, trainer, may_write, monkeypatch):
    def write(folder, params):
        may_write.wait()
        save_model(trainer.model, tokenizer(), folder, params)

    saver.save_training(trainer, write)


def shards_when_allowed(saver, trainer, may_write, monkeypatch):
    def write(*shards):
        may_write.wait()
        write_shards(*shards)

    monkeypatch.setattr(async_saver, "write_shards", write)
    saver.save_shards(trainer)


@pytest.mark.parametrize("save", [whole_when_allowed, shards_when_allowed])
async def test_training_goes_on_while_what_it_was_is_written(save, tmp_path, monkeypatch):
    trainer, manager, may_write = new_trainer(), CheckpointManager(tmp_path), Event()
    with BackgroundSaver(manager) as saver:
        await trainer.train(1)
        saved = params_of(trainer)
        save(saver, trainer, may_write, monkeypatch)
        await trainer.train(2)
        assert manager.steps() == []
        may_write.set()
    assert manager.steps() == [1]
    assert not equal(params_of(trainer), saved)
    again = new_trainer()
    resume_training(manager, again)
    assert (again.version, equal(params_of(again), saved)) == (1, True)
    await again.train(2)
    assert equal(params_of(again), params_of(trainer))


def full_disk(folder, params):
    raise OSError("no space left")


NEXT = {
    "save": lambda saver, trainer: saver.save_shards(trainer),
    "finish": lambda saver, trainer: saver.finish(),
    "end": lambda saver, trainer: None,
}


def fail_then(next_call, manager):
    trainer = new_trainer()
    with BackgroundSaver(manager) as saver:
        saver.save_training(trainer, full_disk)
        NEXT[next_call](saver, trainer)


@pytest.mark.parametrize("next_call", NEXT)
def test_what_fails_in_the_background_is_raised_by_the_next_call(tmp_path, next_call):
    manager = CheckpointManager(tmp_path)
    with pytest.raises(CheckpointError, match=r"rank 0: .*cannot write .*no space left"):
        fail_then(next_call, manager)
    assert manager.steps() == []


async def test_after_a_failure_the_next_checkpoint_is_written(tmp_path):
    trainer, manager = new_trainer(), CheckpointManager(tmp_path)
    with BackgroundSaver(manager) as saver:
        saver.save_training(trainer, lambda folder, params: 1 / 0)
        with pytest.raises(CheckpointError, match="ZeroDivisionError"):
            saver.finish()
        saver.save_shards(trainer)
    assert manager.steps() == [0]


def save_then(error, manager, write_model):
    trainer = new_trainer()
    with BackgroundSaver(manager) as saver:
        saver.save_training(trainer, write_model)
        raise error


def test_an_error_of_the_run_is_not_hidden_by_one_of_a_checkpoint(tmp_path, caplog):
    with pytest.raises(KeyError, match="the run"):
        save_then(KeyError("the run"), CheckpointManager(tmp_path), full_disk)
    assert "a save failed" in caplog.text


def check_until_it_fails(saver):
    while True:
        saver.check()


def test_a_look_at_what_is_written_waits_for_nothing(tmp_path):
    trainer, may_write = new_trainer(), Event()

    def write(folder, params):
        may_write.wait()
        full_disk(folder, params)

    with BackgroundSaver(CheckpointManager(tmp_path)) as saver:
        saver.check()
        saver.save_training(trainer, write)
        saver.check()
        may_write.set()
        with pytest.raises(CheckpointError, match="no space left"):
            check_until_it_fails(saver)
        with pytest.raises(CheckpointError, match="no space left"):
            saver.finish()
        saver.check()


@pytest.mark.parametrize("fails", [False, True])
def test_a_further_folder_gets_the_model_of_a_complete_checkpoint(tmp_path, fails):
    trainer, manager = new_trainer(), CheckpointManager(tmp_path / "run")
    write = full_disk if fails else partial(save_model, trainer.model, tokenizer())
    with (
        pytest.raises(CheckpointError) if fails else nullcontext(),
        BackgroundSaver(manager) as saver,
    ):
        saver.save_training(trainer, write, model_folder=tmp_path / "model")
    assert manager.steps() == ([] if fails else [0])
    assert (tmp_path / "model").exists() is not fails
    if not fails:
        load_params(tiny_model(1), tmp_path / "model")
