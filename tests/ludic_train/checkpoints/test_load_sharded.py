"""Models of which each rank reads its shards alone."""

import json

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from two_ranks.launch import run_on_ranks
from two_ranks.learning import tiny_mixture, tiny_model, tokenizer

from ludic_train.checkpoints.param_files import load_sharded
from ludic_train.distributed.device import process_group
from ludic_train.errors import ModelNotFound, UnsupportedModel
from ludic_train.models.load import save_model


def found_by(folder, out, *way):
    out.mkdir()
    run_on_ranks("two_ranks.from_files", folder, out, *way)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
)
def test_shards_that_two_ranks_read_are_those_of_the_whole_model(tmp_path, dtype):
    save_model(tiny_model().to(dtype), tokenizer(), tmp_path / "model")
    for rank in found_by(tmp_path / "model", tmp_path / "out"):
        assert rank == {"differ": [], "same names": True, "log-probs": True, "gradients": 0.0}


@pytest.mark.slow
def test_no_rank_holds_the_whole_model(tmp_path):
    # 34M params in float32, 136 MB. 20 MB or so of the growth are of torch's own.
    config = Qwen2Config(
        vocab_size=16_000,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    save_model(Qwen2ForCausalLM(config), tokenizer(), tmp_path / "model")
    for rank in found_by(tmp_path / "model", tmp_path / "sharded", "sharded"):
        assert rank["grown"] < 0.75 * 2 * rank["shards"], rank
    for rank in found_by(tmp_path / "model", tmp_path / "plain", "plain"):
        assert rank["grown"] > 2 * rank["shards"], rank


def test_models_that_cannot_be_read_by_rank_are_refused(tmp_path):
    with pytest.raises(ModelNotFound, match="safetensors"):
        load_sharded(tmp_path)
    save_model(tiny_mixture(), tokenizer(), tmp_path)
    with (
        process_group("cpu"),
        pytest.raises(UnsupportedModel, match=r"experts.* None in its files"),
    ):
        load_sharded(tmp_path)
