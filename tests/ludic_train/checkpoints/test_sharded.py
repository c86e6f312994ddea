"""Files that each rank writes for itself, put together again."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from two_ranks.learning import random_rows, settings, tiny_model, tokenizer

from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.sharded import (
    Shards,
    export_params,
    read_shards,
    wait_for_shards,
    whole_tensors,
    write_shards,
)
from ludic_train.checkpoints.training_state import resume_training, save_shards, save_training
from ludic_train.errors import CheckpointError
from ludic_train.models.load import load_model, save_model
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer


def write_two(folder):
    """A 5 x 2 tensor on two ranks, of 3 and 2 rows, and a number that is rank 0's."""
    whole = torch.arange(10.0).view(5, 2)
    first = Shards(tensors={"w": whole[:3], "n": torch.tensor(7.0)}, starts={"w": 0, "n": 0})
    write_shards(folder, first, 0)
    write_shards(folder, Shards(tensors={"w": whole[3:]}, starts={"w": 3}), 1)
    return whole


def test_parts_make_the_whole(tmp_path):
    whole = write_two(tmp_path)
    found = read_shards(tmp_path, {"w": torch.empty(5, 2), "n": torch.tensor(0.0)})
    assert torch.equal(found["w"], whole)
    assert float(found["n"]) == 7.0
    everything = dict(whole_tensors(tmp_path, lambda name: True))
    assert torch.equal(everything["w"], whole)
    assert set(everything) == {"w", "n"}


def test_a_lost_part_is_noticed(tmp_path):
    write_two(tmp_path)
    (tmp_path / "rank_00001.json").unlink()
    with pytest.raises(CheckpointError, match=r"\[3, 2\] for w and \[5, 2\] is needed"):
        read_shards(tmp_path, {"w": torch.empty(5, 2)})
    with pytest.raises(CheckpointError, match="has no part of v"):
        read_shards(tmp_path, {"v": torch.empty(5, 2)})


def test_whoever_waits_for_parts_that_never_come_is_told_whose(tmp_path):
    write_two(tmp_path)
    wait_for_shards(tmp_path, 2, lambda: False)
    with pytest.raises(CheckpointError, match=r"parts of ranks \[2, 3\]"):
        wait_for_shards(tmp_path, 4, lambda: True)
    with pytest.raises(CheckpointError, match=r"parts of ranks \[2\]"):
        wait_for_shards(tmp_path, 3, lambda: False, timeout_s=0.05)


def new_trainer(model):
    source = OfflineBatchSource(random_rows(8), batch_size=8)
    return Trainer(model, sft(), source, cfg=settings())


async def test_what_a_killed_run_of_more_ranks_left_is_not_read(tmp_path):
    manager, trainer = CheckpointManager(tmp_path), new_trainer(tiny_model())
    await trainer.train(1)
    left = tmp_path / "shards_00000001.incomplete"
    left.mkdir()
    save_file({"param/lm_head.weight": torch.ones(3)}, left / "rank_00003.safetensors")
    (left / "rank_00003.json").write_text(json.dumps({"param/lm_head.weight": 0}))
    save_shards(manager, trainer)
    assert not list(tmp_path.glob("shards_*"))
    again = new_trainer(tiny_model(1))
    resume_training(manager, again)
    for a, b in zip(trainer.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("file_bytes", "files", "dtype"),
    [(5e9, 1, None), (30_000, 2, None), (5e9, 1, torch.bfloat16)],
)
async def test_shards_are_exported_in_hugging_face_format(tmp_path, file_bytes, files, dtype):
    manager, trainer = CheckpointManager(tmp_path / "run"), new_trainer(tiny_model())
    await trainer.train(1)
    save_shards(manager, trainer)
    out = tmp_path / "model"
    config, options = trainer.model.config, {"file_bytes": file_bytes, "dtype": dtype}
    written = export_params(manager.load().path, out, config, **options)
    assert len(written) == files
    expected = dtype or torch.float32
    assert {t.dtype for file in written for t in load_file(file).values()} == {expected}
    tokenizer().save_pretrained(out)
    model, _ = load_model(out)
    for name, param in trainer.model.named_parameters():
        assert torch.equal(model.get_parameter(name), param.to(expected).float()), name


def test_a_checkpoint_that_holds_its_model_is_not_exported(tmp_path):
    manager, trainer = CheckpointManager(tmp_path / "run"), new_trainer(tiny_model())
    save_training(manager, trainer, lambda f, p: save_model(trainer.model, tokenizer(), f, p))
    with pytest.raises(CheckpointError, match="its model is in"):
        export_params(manager.load().path, tmp_path / "model", trainer.model.config)
