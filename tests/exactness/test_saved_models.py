"""Models come back from every way of saving with all that they compute with."""

import pytest
import torch
from model_types import WITH_BUFFERS, made
from two_ranks.learning import settings, tokenizer

from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.sharded import export_params
from ludic_train.checkpoints.training_state import save_shards
from ludic_train.errors import CheckpointError
from ludic_train.models.load import load_model, save_model
from ludic_train.models.modules import persistent_buffers
from ludic_train.trainer.trainer import Trainer

IDS = torch.arange(3, 27).view(2, 12)


def plainly(model, folder):
    save_model(model, tokenizer(), folder)


def from_copies(model, folder):
    params = {name: param.detach().clone() for name, param in model.named_parameters()}
    save_model(model, tokenizer(), folder, params)


def from_shards(model, folder):
    manager = CheckpointManager(folder / "run")
    save_shards(manager, Trainer(model, sft(), None, cfg=settings()))
    export_params(manager.load().path, folder, model.config)
    tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("save", [plainly, from_copies, from_shards])
@pytest.mark.parametrize("name", WITH_BUFFERS)
@torch.no_grad()
def test_buffers_are_saved(name, save, tmp_path):
    model = made(name)
    buffers = persistent_buffers(model)
    assert buffers
    for buffer in buffers.values():
        # Far from what a new model has.
        buffer += 0.5 * torch.rand(buffer.shape)
    before = model(input_ids=IDS).logits
    save(model, tmp_path)
    again, _ = load_model(tmp_path)
    assert torch.equal(again.eval()(input_ids=IDS).logits, before)


def test_an_export_without_frozen_params_is_refused(tmp_path):
    model = made("qwen3")
    model.get_input_embeddings().weight.requires_grad_(False)
    with pytest.raises(CheckpointError, match=r"lacks 1 params.*embed_tokens\.weight"):
        from_shards(model, tmp_path)
