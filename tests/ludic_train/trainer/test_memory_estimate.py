import json

import pytest
import torch

from ludic_gym.errors import ConfigError
from ludic_train.commands.plan import main as plan
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.errors import ModelNotFound
from ludic_train.models.logprobs import action_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.memory_estimate import (
    LiveBytes,
    Load,
    estimate_update,
    measured_flops,
    model_from_config,
    read_config,
)

LOAD = Load(tokens=2048, micro_tokens=1024, row_tokens=128, sampled=0.5)


@pytest.fixture(scope="module")
def model():
    return make_tiny_model(make_tokenizer(["a b c"]))


def on_meta(model, **options):
    return model_from_config(model.config, torch.float32, **options)


@pytest.mark.parametrize("recompute", [False, True])
def test_activations_are_those_that_live_in_a_real_update(recompute):
    model = make_tiny_model(make_tokenizer(["a b c"]), num_layers=6)
    found = estimate_update(on_meta(model), LOAD, recompute=recompute)
    if recompute:
        checkpoint_activations(model)
    at = torch.ones(512, dtype=torch.int64)
    with LiveBytes(model.parameters()) as live:
        for _ in range(2):
            out = action_logprobs(model, torch.zeros(8, 128, dtype=torch.int64), at, at, at.float())
            out.logprobs.sum().backward()
            del out
    gradients = found.bytes["gradients"]
    assert found.bytes["activations"] == pytest.approx(live.peak - gradients, rel=0.02)


def test_params_are_counted_once_though_tied(model):
    found = estimate_update(on_meta(model), LOAD)
    assert found.params == found.trained == sum(p.numel() for p in model.parameters())
    assert found.bytes["params"] == 4 * found.params
    assert found.bytes["optimizer"] == 8 * found.params


def test_compute_is_six_operations_per_param_and_token_and_what_attention_takes(model):
    found = estimate_update(on_meta(model), LOAD)
    body = found.params - model.get_input_embeddings().weight.numel()
    least = 6 * body * LOAD.tokens
    assert least < found.flops < 2.5 * least


def test_recomputing_and_lora_and_shards_save_what_they_should(model):
    usual = estimate_update(on_meta(model), LOAD)
    recomputed = estimate_update(on_meta(model), LOAD, recompute=True)
    assert recomputed.bytes["activations"] < 0.8 * usual.bytes["activations"]
    assert recomputed.flops > 1.2 * usual.flops
    lora = estimate_update(on_meta(model, lora_rank=2), LOAD)
    assert lora.trained < 0.2 * usual.trained
    assert lora.bytes["optimizer"] == 8 * lora.trained
    sharded = estimate_update(
        on_meta(model), Load(tokens=2048, micro_tokens=1024, row_tokens=128, world_size=4)
    )
    assert sharded.bytes["optimizer"] == usual.bytes["optimizer"] // 4
    assert sharded.bytes["gathered"] > 0


def test_the_command_prints_a_total(model, tmp_path, capsys):
    model.config.save_pretrained(tmp_path)
    options = ["--tokens", "2048", "--micro-tokens", "1024", "--row-tokens", "128"]
    assert plan([str(tmp_path), *options, "--tflops", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "together" in printed
    assert "time at 0.1 TFLOP/s" in printed


def test_the_help_says_what_to_do_where_memory_is_short(capsys):
    with pytest.raises(SystemExit) as ended:
        plan(["--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--recompute first" in printed
    assert printed.count("ludic plan path/to/model") == 2


def test_a_folder_without_a_config_is_told(tmp_path):
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        read_config(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}))
    with pytest.raises(ModelNotFound):
        read_config(str(tmp_path))


def test_loads_that_do_not_fit_into_themselves_are_refused():
    with pytest.raises(ConfigError, match="row_tokens=4096"):
        Load(row_tokens=4096, micro_tokens=2048)


def test_this_machine_computes_something():
    assert measured_flops(seconds=0.05) > 1e8
