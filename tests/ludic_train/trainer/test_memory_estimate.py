import copy
import json

import pytest
import torch
from two_ranks.learning import tiny_mixture

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import sft
from ludic_train.commands.plan import main as plan
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.errors import ModelNotFound
from ludic_train.models.head import action_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.memory_estimate import (
    LiveBytes,
    Load,
    estimate_update,
    model_from_config,
    read_config,
)
from ludic_train.trainer.trainer import Trainer

LOAD = Load(tokens=2048, micro_tokens=1024, row_tokens=128, sampled=0.5)


@pytest.fixture(scope="module")
def model():
    return make_tiny_model(make_tokenizer(["a b c"]))


def on_meta(model, **options):
    return model_from_config(model.config, torch.float32, **options)


def real_peak(model):
    """Most bytes that live at once beside the params in two micro-batches of LOAD."""
    at = torch.ones(512, dtype=torch.int64)
    with LiveBytes(model.parameters()) as live:
        for _ in range(2):
            out = action_logprobs(model, torch.zeros(8, 128, dtype=torch.int64), at, at, at.float())
            out.logprobs.sum().backward()
            del out
    return live.peak


@pytest.mark.long
@pytest.mark.parametrize("recompute", [False, True])
def test_activations_are_those_that_live_in_a_real_update(recompute):
    model = make_tiny_model(make_tokenizer(["a b c"]), num_layers=6)
    found = estimate_update(on_meta(model), LOAD, recompute=recompute)
    if recompute:
        checkpoint_activations(model)
    expected = real_peak(model) - found.bytes["gradients"]
    assert found.bytes["activations"] == pytest.approx(expected, rel=0.02)


def test_params_are_counted_once_though_tied_with_the_operations_of_each(model):
    found = estimate_update(on_meta(model), LOAD)
    assert found.params == found.trained == sum(p.numel() for p in model.parameters())
    assert found.bytes["params"] == 4 * found.params
    assert found.bytes["optimizer"] == 8 * found.params
    # Six operations per param and token, and what attention takes.
    body = found.params - model.get_input_embeddings().weight.numel()
    least = 6 * body * LOAD.tokens
    assert least < found.flops < 2.5 * least


@pytest.mark.long
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


@pytest.mark.long
def test_moments_are_those_of_an_optimizer_and_offloading_moves_them(model):
    usual = estimate_update(on_meta(model), LOAD)
    trained = copy.deepcopy(model)
    optimizer = Trainer(trained, sft(), None, cfg=TrainerConfig()).optimizer
    for param in trained.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()
    states = optimizer.state.values()
    moments = [t.nbytes for state in states for name, t in state.items() if name != "step"]
    assert usual.bytes["optimizer"] == sum(moments)
    away = estimate_update(on_meta(model), LOAD, offload=True)
    assert away.host_bytes == {n: usual.bytes[n] for n in ("params", "gradients", "optimizer")}
    assert away.bytes.keys() == {"activations", "gathered"}
    assert away.bytes["activations"] == usual.bytes["activations"]


def test_params_that_compute_in_bfloat16_are_kept_in_float32(model):
    usual = estimate_update(on_meta(model), LOAD)
    low = estimate_update(model_from_config(model.config, torch.bfloat16), LOAD)
    for name in ("params", "gradients", "optimizer"):
        assert low.bytes[name] == usual.bytes[name]
    assert low.bytes["activations"] < 0.7 * usual.bytes["activations"]
    # The blocks that are at work, in bfloat16.
    assert 0 < low.bytes["gathered"] <= usual.bytes["params"]


def test_a_mixture_computes_the_experts_that_are_chosen():
    model = tiny_mixture()
    found = estimate_update(on_meta(model), LOAD)
    more = copy.deepcopy(model)
    more.config.num_experts = 8
    # Twice the experts of 3 matrices of 16 x 8 in two layers, of which as many are chosen.
    wide = estimate_update(on_meta(more), LOAD)
    assert wide.params - found.params == 2 * (4 * 3 * 16 * 8 + 4 * 16)
    # Routers alone compute more: 6 operations per param and token, but for a row's last token.
    assert wide.flops - found.flops == 6 * 2 * 4 * 16 * LOAD.tokens * 127 / 128
    # As in a real update in memory: experts of transformers' own kernel.
    expected = real_peak(model) - found.bytes["gradients"]
    assert found.bytes["activations"] == pytest.approx(expected, rel=0.1)


def test_adapters_of_experts_are_not_estimated():
    with pytest.raises(ConfigError, match=r"lora_rank=2 .*qwen3_moe"):
        on_meta(tiny_mixture(), lora_rank=2)


def test_the_command_prints_a_total(model, tmp_path, capsys):
    model.config.save_pretrained(tmp_path)
    options = ["--tokens", "2048", "--micro-tokens", "1024", "--row-tokens", "128"]
    options += ["--offload", "--tflops", "0.1"]
    assert plan([str(tmp_path), *options]) == 0
    printed = capsys.readouterr().out
    for part in ("memory of the host", "together", "time at 0.1 TFLOP/s"):
        assert part in printed


def test_the_estimate_is_printed_as_json_for_programs(model, tmp_path, capsys):
    model.config.save_pretrained(tmp_path)
    options = ["--tokens", "64", "--micro-tokens", "64", "--row-tokens", "32", "--tflops", "0.1"]
    assert plan([str(tmp_path), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total_bytes"] == sum(found["bytes"].values())
    # 1.5 seconds for each second of matrix products.
    assert found["seconds"] == pytest.approx(1.5 * found["flops"] / 0.1e12)
    assert found["params"] == found["trained"] > 0


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf"])
def test_speeds_and_loads_that_cannot_be_are_refused(speed):
    with pytest.raises(ConfigError, match="must be above 0"):
        plan(["any", "--tflops", speed])
    with pytest.raises(ConfigError, match="row_tokens=4096"):
        Load(row_tokens=4096, micro_tokens=2048)


def test_a_folder_without_a_config_is_told(tmp_path):
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        read_config(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense"}))
    with pytest.raises(ModelNotFound):
        read_config(str(tmp_path))
