"""From what a trainer calls its params to what a checkpoint does."""

import pytest
import torch
from model_types import made
from peft import LoraConfig, get_peft_model
from torch import nn, tensor

from ludic_gym.errors import ConfigError
from ludic_train.models.adapters import adapter_params, has_expert_adapters, merged_params
from ludic_train.models.checkpoint_names import checkpoint_params

Q = "base_model.model.q_proj"
PARAMS = [
    (f"{Q}.base_layer.weight", tensor([[1.0, 0.0], [0.0, 1.0]])),
    (f"{Q}.base_layer.bias", tensor([0.5, 0.5])),
    (f"{Q}.lora_A.default.weight", tensor([[1.0, 2.0]])),
    (f"{Q}.lora_B.default.weight", tensor([[3.0], [0.0]])),
    ("base_model.model.norm.weight", tensor([7.0])),
]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(1)


def adapted(alpha):
    """A model with the names of PARAMS; its scaling is alpha / 1."""
    return get_peft_model(Layer(), LoraConfig(r=1, lora_alpha=alpha, target_modules=["q_proj"]))


def test_adapters_are_merged_into_new_memory():
    merged = dict(merged_params(PARAMS, adapted(2)))

    # W + 2 B A = [[1, 0], [0, 1]] + 2 [[3, 6], [0, 0]]
    assert merged["q_proj.weight"].tolist() == [[7.0, 12.0], [0.0, 1.0]]
    assert merged["q_proj.bias"].tolist() == [0.5, 0.5]
    assert list(merged)[-1] == "norm.weight"
    assert len(merged) == 3
    assert PARAMS[0][1].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_merged_param_is_computed_in_float32_and_keeps_its_dtype():
    low = [(name, value.bfloat16()) for name, value in PARAMS]
    low[0] = (low[0][0], tensor([[256.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16))

    merged = dict(merged_params(low, adapted(0.5)))["q_proj.weight"]

    # 256 + 0.5 * 3 = 257.5, between the bfloat16 numbers 256 and 258.
    assert merged.dtype == torch.bfloat16
    assert merged[0].tolist() == [258.0, 3.0]


def test_adapters_without_their_model_are_refused():
    with pytest.raises(ConfigError, match="give the publisher its model"):
        list(checkpoint_params(PARAMS, None))


@pytest.mark.parametrize("params", [PARAMS[2:], PARAMS[:3], PARAMS[:2]])
def test_a_part_of_a_layer_is_refused(params):
    with pytest.raises(ConfigError, match=r"the params of base_model\.model\.q_proj come without"):
        list(merged_params(params, adapted(1)))


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "granitemoe"])
def test_adapters_of_experts_are_merged_as_peft_does(name):
    targets = {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj"]}
    targets["target_parameters"] += ["experts.down_proj"]
    model = get_peft_model(made(name), LoraConfig(r=2, lora_alpha=3, **targets))
    for param_name, param in model.named_parameters():
        if "lora_B" in param_name:
            nn.init.normal_(param, std=0.1)
    assert has_expert_adapters(model)
    found = dict(merged_params(model.named_parameters(), model))
    expected = dict(model.merge_and_unload().named_parameters())
    assert found.keys() == expected.keys()
    for param_name, param in expected.items():
        assert torch.allclose(found[param_name], param, atol=1e-6), param_name


def test_fused_experts_without_their_model_are_refused():
    params = made("mixtral").named_parameters()
    with pytest.raises(ConfigError, match=r"all experts of a layer.*give the publisher its model"):
        list(checkpoint_params(params, None))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model.norm.weight", "model.norm.weight"),
        ("_orig_mod.model.norm.weight", "model.norm.weight"),
        ("model.layers.0._checkpoint_wrapped_module.mlp.w", "model.layers.0.mlp.w"),
        ("model.layers.0._orig_mod.mlp.w", "model.layers.0.mlp.w"),
    ],
)
def test_wrappers_are_left_out_of_names(name, plain):
    assert [n for n, _ in checkpoint_params([(name, tensor([0.0]))], None)] == [plain]


def test_an_adapter_has_the_names_that_peft_reads():
    assert [name for name, _ in adapter_params(PARAMS, adapted(1))] == [
        f"{Q}.lora_A.weight",
        f"{Q}.lora_B.weight",
    ]
