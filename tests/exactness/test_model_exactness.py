"""Tests of a model before its first update, over the architectures of transformers."""

import numpy as np
import pytest
import torch
from model_types import ARCHITECTURES, SIZES, made
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
)

from ludic_train.algorithms.presets import reinforce
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.errors import UnsupportedModel
from ludic_train.models import head
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.probes import (
    check_logprobs,
    padding_reason,
    reason_not_to_pack,
    reason_not_to_share_prompts,
)
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_log_probs_are_the_models_own_in_every_architecture(name):
    check_logprobs(made(name))


@pytest.mark.long
def test_most_architectures_keep_packed_items_apart():
    reasons = {name: reason_not_to_pack(made(name)) for name in ARCHITECTURES}
    apart = [name for name, reason in reasons.items() if reason is None]
    assert {
        "llama",
        "qwen2",
        "qwen3",
        "gemma2",
        "mistral",
        "granite",
        "olmo2",
        "qwen3_moe",
        "mixtral",
        # These have states along a row.
        "mamba",
        "recurrent_gemma",
        "qwen3_5_text",
        "nemotron_h",
    } <= {*apart}
    # Their positions are distances, or counted along the mask; chunks count from a row's start.
    assert {"bloom", "falcon", "opt", "llama4_text"} == reasons.keys() - {*apart}


@pytest.mark.long
def test_most_architectures_compute_a_shared_prompt_once():
    reasons = {name: reason_not_to_share_prompts(made(name)) for name in ARCHITECTURES}
    able = {name for name, reason in reasons.items() if reason is None}
    assert {"llama", "qwen2", "qwen3", "granite", "olmo2", "qwen3_moe", "phi3", "gpt2"} <= able
    # They have windows, states that run on, or distances instead of positions.
    unable = {"mistral", "gemma2", "olmo3", "gpt_neo", "mamba", "qwen3_next", "bloom"}
    assert not able & unable


def causal_mask(mask):
    return mask.new_ones(mask.shape).tril()


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        (causal_mask, "items that share a prompt see each other"),
        # transformers takes each jump of the positions for a new item, without the prompt.
        (lambda mask: None, "an item that shares its prompt is scored"),
    ],
)
def test_a_model_that_reads_another_mask_is_found_out(replaced, reason):
    model = tiny_model()
    inner = model.model.forward

    def with_another(input_ids, attention_mask=None, **kwargs):
        mask = None if attention_mask is None else replaced(attention_mask)
        return inner(input_ids=input_ids, attention_mask=mask, **kwargs)

    model.model.forward = with_another
    assert reason_not_to_share_prompts(model).startswith(reason)


@pytest.mark.parametrize("name", ["gemma2", "granite", "cohere", "falcon_h1"])
def test_what_a_model_does_after_its_head_is_not_overlooked(name, monkeypatch):
    monkeypatch.setattr(head, "logit_finish", lambda config: None)
    with pytest.raises(UnsupportedModel, match=f"model_type '{name}'.* nats per token"):
        check_logprobs(made(name))


def test_a_decoder_that_is_a_layer_of_the_head_is_refused_by_name():
    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    config = AutoConfig.for_model(
        "modernbert-decoder", **sizes, cls_token_id=1, sep_token_id=2, local_attention=64
    )
    with pytest.raises(UnsupportedModel, match="'modernbert-decoder'"):
        check_logprobs(AutoModelForCausalLM.from_config(config).eval())


def test_items_do_not_share_rows_where_attention_chunks_count_from_the_row():
    # Its chunks of 64 tokens are wider than the probe's rows, which so see nothing of them.
    reason = reason_not_to_pack(made("llama4_text"))
    assert reason == "attention is in chunks that count from the start of a row"


def dropping():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.5, attn_pdrop=0.5)
    )


@pytest.fixture
def rows():
    mask = np.arange(12) >= 4
    return [
        SAWItem(
            input_ids=np.arange(3, 15, dtype=np.int32),
            action_mask=mask,
            weight=mask.astype(np.float32),
        )
    ]


def with_dropout(name, dropout):
    torch.manual_seed(0)
    if name == "gpt2":
        config = GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, resid_pdrop=dropout)
        return GPT2LMHeadModel(config)
    sizes = {"vocab_size": 128, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "word_embed_proj_dim": 32, "dropout": dropout}
    return OPTForCausalLM(OPTConfig(**sizes))


@pytest.mark.parametrize("name", ["gpt2", "opt"])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_dropout_is_off_in_updates(rows, name, checkpoints):
    found = []
    for dropout in (0.0, 0.5):
        model = with_dropout(name, dropout).train()
        if checkpoints:
            checkpoint_activations(model)
        source = OfflineBatchSource(rows, batch_size=1)
        (metrics,) = Trainer(model, reinforce(filter=None), source).update(rows)
        found.append((metrics["entropy"], metrics["grad_norm"]))
    assert found[0] == found[1]


def tiny_model():
    return make_tiny_model(make_tokenizer(["a b c"]), hidden_size=16, num_heads=2, num_kv_heads=1)


def test_a_transformer_that_reads_positions_keeps_packed_items_apart():
    assert reason_not_to_pack(tiny_model()) is None


def test_a_model_whose_packed_items_see_each_other_is_found_out(caplog):
    model = tiny_model()
    inner = model.model.forward

    def with_a_mask(input_ids, **kwargs):
        # An attention mask of ones switches the reading of positions off, without a word.
        return inner(
            input_ids=input_ids, **(kwargs | {"attention_mask": torch.ones_like(input_ids)})
        )

    model.model.forward = with_a_mask
    assert padding_reason(model) == "items that share a row see each other"
    assert "items that share a row see each other" in caplog.text


def test_a_model_that_ignores_where_items_start_is_found_out():
    model = tiny_model()
    inner = model.model.forward
    model.model.forward = lambda input_ids, **kwargs: inner(
        input_ids=input_ids, **(kwargs | {"position_ids": None})
    )
    assert reason_not_to_pack(model) == "items that share a row see each other"


@pytest.mark.parametrize("layers", [4, 28])
def test_deep_models_of_16_bits_are_packed_too(layers):
    torch.manual_seed(0)
    model = make_tiny_model(make_tokenizer(["a b c"]), num_layers=layers).bfloat16()
    assert reason_not_to_pack(model) is None
    check_logprobs(model)
