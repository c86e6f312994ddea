"""Models come back from every way of saving with all that they compute with."""

import pytest
import torch
from model_types import WITH_BUFFERS, WITH_TOWERS, made, made_with_tower
from safetensors.torch import load_file
from two_ranks.learning import random_rows, settings, tokenizer

from ludic_train.agents.params import StagedParams
from ludic_train.algorithms.presets import sft
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.sharded import export_params
from ludic_train.checkpoints.training_state import save_shards
from ludic_train.errors import CheckpointError, UnsupportedModel
from ludic_train.models.adapters import base_params
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.models.load import LoRA, load_model, save_model, with_new_lora
from ludic_train.models.modules import persistent_buffers, unwrapped
from ludic_train.trainer import probes
from ludic_train.trainer.probes import check_sent
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
    # Of as many tokens as the tokenizer has.
    model = made(name, vocab_size=320, vocab_size_per_layer_input=320)
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


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("name", WITH_TOWERS)
def test_a_model_with_a_tower_is_trained_saved_and_sent_in_its_own_class(name, lora, tmp_path):
    plainly(made_with_tower(name), tmp_path / "base")
    before = load_file(tmp_path / "base" / "model.safetensors")
    model, _ = load_model(tmp_path / "base", lora_rank=2 if lora else None)
    assert type(unwrapped(model)) is type(made_with_tower(name))
    cfg = settings()
    for _ in range(2):
        Trainer(model, sft(), None, cfg=cfg).update(random_rows(6))

    served, _ = load_model(tmp_path / "base")
    sent = dict(checkpoint_params(model.named_parameters(), model))
    assert sent.keys() == before.keys() - ({"lm_head.weight"} - sent.keys())
    StagedParams(served).put_in({n: t.detach().clone() for n, t in sent.items()})
    with torch.no_grad():
        wanted, found = (each.eval()(input_ids=IDS).logits for each in (model, served))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)

    save_model(model, tokenizer(), tmp_path / "after")
    again, _ = load_model(tmp_path / "after")
    with torch.no_grad():
        assert torch.equal(again.eval()(input_ids=IDS).logits, wanted)
    towers = [n for n in before if any(part in n for part in ("vision", "visual", "projector"))]
    assert towers
    assert all(torch.equal(sent[n], before[n]) for n in towers)
    assert not any(
        torch.equal(sent[n], before[n]) for n in before if "q_proj" in n and n not in towers
    )


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma4_text", "qwen3_moe", "gpt2", "mamba"])
def test_what_is_sent_is_checked_by_log_probs(name, monkeypatch):
    model = made(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_sent(model)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())

    def without_the_last(params, model):
        sent = list(checkpoint_params(params, model))
        last = max(
            i
            for i, (n, _) in enumerate(sent)
            if n.endswith(("norm.weight", "ln_f.weight", "norm_f.weight"))
        )
        return [(n, torch.ones_like(t) if i == last else t) for i, (n, t) in enumerate(sent)]

    monkeypatch.setattr(probes, "checkpoint_params", without_the_last)
    with pytest.raises(UnsupportedModel, match="nats per token away from those of"):
        check_sent(model)


def test_an_adapter_that_still_changes_nothing_is_missed_too(monkeypatch):
    model = with_new_lora(made("qwen3"), LoRA(rank=2))
    check_sent(model)
    monkeypatch.setattr(probes, "checkpoint_params", lambda params, model: base_params(model))
    with pytest.raises(UnsupportedModel, match="nats per token"):
        check_sent(model)
