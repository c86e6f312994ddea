"""Mixtures of experts: in files and pushes as on the hub, in memory as transformers fuses them."""

import copy

import model_types
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.core_model_loading import WeightRenaming
from two_ranks.learning import (
    Fixed,
    gradient_of,
    random_rows,
    relative_error,
    settings,
    tiny_mixture,
    tokenizer,
)

from ludic_gym.errors import ConfigError
from ludic_train.agents.params import StagedParams
from ludic_train.algorithms.presets import grpo
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.sharded import export_params
from ludic_train.checkpoints.training_state import save_shards
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.errors import UnsupportedModel
from ludic_train.models.checkpoint_names import (
    check_conversion,
    checkpoint_params,
    hub_params,
    model_params,
)
from ludic_train.models.load import load_model, load_params, save_model
from ludic_train.trainer.trainer import Trainer

# Those of which transformers renames, fuses or transposes params, and three that stay as they are.
CONVERTED = [
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "granitemoeshared", "phimoe",
    "qwen3_next", "gpt_neox",
]  # fmt: skip
PLAIN = ["qwen3", "gemma2", "gpt2"]


def made(name):
    """A model with a row for each token of the tokenizer."""
    return model_types.made(name, vocab_size=320)


def files_of(folder):
    return {n: t for path in folder.glob("*.safetensors") for n, t in load_file(path).items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def named(model):
    return {name: param.detach() for name, param in model.named_parameters()}


def changed(model):
    """A copy with other params."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for param in other.parameters():
            param.normal_()
    return other


def test_experts_have_the_names_and_shapes_of_the_hub():
    model = made("mixtral")
    params = dict(checkpoint_params(model.named_parameters(), model))
    block = "model.layers.1.block_sparse_moe"
    # 4 experts of 3 matrices, a router, 4 of attention and 2 norms per block; 3 outside of blocks.
    assert len(params) == 2 * (4 * 3 + 1 + 4 + 2) + 3
    assert params[f"{block}.gate.weight"].shape == (4, 32)
    own = model.get_parameter("model.layers.1.mlp.experts.gate_up_proj")
    # The first half of the rows is w1, the gate, and the second one w3.
    assert torch.equal(params[f"{block}.experts.2.w1.weight"], own[2, :48])
    assert torch.equal(params[f"{block}.experts.2.w3.weight"], own[2, 48:])
    down = model.get_parameter("model.layers.1.mlp.experts.down_proj")
    assert torch.equal(params[f"{block}.experts.3.w2.weight"], down[3])


@pytest.mark.parametrize("name", CONVERTED + PLAIN)
def test_what_is_saved_and_loaded_equals_what_is_in_memory(name, tmp_path):
    model = made(name)
    save_model(model, tokenizer(), tmp_path)
    stored = files_of(tmp_path)
    # The files and the pushes are the same, so a server starts and continues with one set of names.
    assert_equal(dict(hub_params(model, named(model).items())), stored)
    assert (stored.keys() == named(model).keys()) == (name in PLAIN)
    loaded, _ = load_model(tmp_path)
    assert_equal(named(loaded), named(model))
    # Also by the conversions that the loaded model remembers, and in place.
    assert_equal(dict(hub_params(loaded, named(loaded).items())), stored)
    other = changed(model)
    load_params(other, tmp_path)
    assert_equal(named(other), named(model))
    check_conversion(model)
    check_conversion(loaded)


def test_ten_experts_come_back_in_their_order():
    # As text, expert 10 would come before expert 2.
    stored = {
        f"model.layers.0.mlp.experts.{i}.{part}.weight": torch.full((2, 3), float(i))
        for i in range(11)
        for part in ("gate_proj", "up_proj")
    }
    (fused,) = model_params(made("qwen3_moe"), stored).values()
    assert fused.shape == (11, 4, 3)
    assert fused[:, 0, 0].tolist() == [float(i) for i in range(11)]


def test_params_without_one_expert_are_refused(tmp_path):
    model = made("qwen3_moe")
    save_model(model, tokenizer(), tmp_path)
    stored = files_of(tmp_path)
    del stored["model.layers.0.mlp.experts.3.down_proj.weight"]
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="another shape"):
        load_params(model, tmp_path)


def test_a_model_whose_names_cannot_be_read_back_is_refused_before_its_first_update():
    model = made("qwen3")
    # Two params of one name in files: the second one would replace the first.
    model._weight_conversions = [
        WeightRenaming("one_norm", "input_layernorm"),
        WeightRenaming("one_norm", "post_attention_layernorm"),
    ]
    trainer = Trainer(model, grpo(), None, cfg=settings())
    before = named(copy.deepcopy(model))
    with pytest.raises(UnsupportedModel, match=r"layernorm.weight of Qwen3ForCausalLM.*read back"):
        trainer.update(random_rows(2))
    assert_equal(named(model), before)


async def test_a_push_reaches_the_local_server_in_the_names_of_the_hub():
    served, trained = made("mixtral"), changed(made("mixtral"))
    StagedParams(served).put_in(dict(checkpoint_params(named(trained).items(), trained)))
    assert_equal(named(served), named(trained))


def test_shards_are_exported_in_the_names_of_the_hub(tmp_path):
    model = made("qwen3_moe")
    manager = CheckpointManager(tmp_path / "run")
    save_shards(manager, Trainer(model, grpo(), Fixed([]), cfg=settings()))
    export_params(manager.load().path, tmp_path / "model", model.config)
    tokenizer().save_pretrained(tmp_path / "model")
    assert_equal(files_of(tmp_path / "model"), dict(hub_params(model, named(model).items())))
    assert_equal(named(load_model(tmp_path / "model")[0]), named(model))


@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
@pytest.mark.parametrize("lora", [False, True])
def test_the_gradient_of_a_mixture_is_the_same_in_packed_rows(kind, lora):
    items = random_rows(24, seed=3)
    alone, _ = gradient_of(items, settings(packing=False), model=tiny_mixture(kind, lora))
    for budget in (100, 10_000):
        packed, metrics = gradient_of(items, settings(budget), model=tiny_mixture(kind, lora))
        assert relative_error(packed, alone) < 1e-6
    # 281 tokens in 3 rows of up to 127: the rows were shared.
    assert metrics["tokens/fill"].value == pytest.approx(281 / (3 * 127))


def test_no_auxiliary_loss_is_added():
    # As the sampler's policy has none; with one, the gradient would depend on the micro-batches.
    items, model = random_rows(8), tiny_mixture()
    plain, _ = gradient_of(items, settings(), model=tiny_mixture())
    model.config.router_aux_loss_coef, model.config.output_router_logits = 100.0, True
    found, _ = gradient_of(items, settings(), model=model)
    assert torch.equal(found, plain)


@pytest.fixture(params=["mixtral", "qwen3_moe", "qwen2_moe", "granitemoe"])
def adapted(request, tmp_path):
    """A mixture with adapters, as `load_model` makes them, of random values."""
    save_model(made(request.param), tokenizer(), tmp_path / "base")
    model, _ = load_model(tmp_path / "base", lora_rank=2)
    for name, param in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(param, std=0.05)
    return model


def test_adapters_train_attention_and_experts_and_never_the_router(adapted):
    layer = "base_model.model.model.layers.0."
    paths = {n.removeprefix(layer).partition(".lora_")[0] for n, _ in adapted.named_parameters()
             if n.startswith(layer) and "lora_A" in n}  # fmt: skip
    experts = {path for path in paths if "expert" in path}
    assert paths - experts == {f"self_attn.{part}_proj" for part in "qkvo"}
    # One of gate and up together, and one of down.
    (inner, outer) = sorted(experts, key=len, reverse=True)
    assert inner == f"{outer}.base_layer"
    assert all("lora_" in n for n, p in adapted.named_parameters() if p.requires_grad)


def test_a_saved_adapter_of_experts_loads_equal(adapted, tmp_path):
    save_model(adapted, tokenizer(), tmp_path / "adapter")
    loaded, _ = load_model(tmp_path / "adapter")
    assert_equal(named(loaded), named(adapted))
    other = changed(adapted)
    load_params(other, tmp_path / "adapter")
    found = named(other)
    assert_equal({n: found[n] for n in found if "lora_" in n},
                 {n: p for n, p in named(adapted).items() if "lora_" in n})  # fmt: skip


def test_adapters_of_experts_are_published_merged_and_refused_alone(adapted, tmp_path):
    ids = torch.arange(1, 13).view(2, 6)
    expected = adapted(input_ids=ids).logits
    pushed = dict(checkpoint_params(named(adapted).items(), adapted))
    served, _ = load_model(tmp_path / "base")
    served.load_state_dict(model_params(served, pushed), strict=False)
    assert torch.allclose(served(input_ids=ids).logits, expected, atol=1e-4)
    with pytest.raises(ConfigError, match=r"experts\.down_proj.*publish it merged"):
        LoRAPublisher("http://x", tmp_path / "lora", adapted)
