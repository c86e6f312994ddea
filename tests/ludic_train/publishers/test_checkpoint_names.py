"""From what a trainer calls its params to what a checkpoint does."""

import pytest
import torch
from torch import tensor

from ludic_gym.errors import ConfigError
from ludic_train.publishers.checkpoint_names import adapter_params, checkpoint_params

Q = "base_model.model.model.layers.0.self_attn.q_proj"
PARAMS = [
    (f"{Q}.base_layer.weight", tensor([[1.0, 0.0], [0.0, 1.0]])),
    (f"{Q}.base_layer.bias", tensor([0.5, 0.5])),
    (f"{Q}.lora_A.default.weight", tensor([[1.0, 2.0]])),
    (f"{Q}.lora_B.default.weight", tensor([[3.0], [0.0]])),
    ("base_model.model.model.norm.weight", tensor([7.0])),
]


def test_adapters_are_merged_into_new_memory():
    merged = dict(checkpoint_params(PARAMS, lora_scaling=2.0))

    # W + 2 B A = [[1, 0], [0, 1]] + 2 [[3, 6], [0, 0]]
    assert merged["model.layers.0.self_attn.q_proj.weight"].tolist() == [[7.0, 12.0], [0.0, 1.0]]
    assert merged["model.layers.0.self_attn.q_proj.bias"].tolist() == [0.5, 0.5]
    assert list(merged)[-1] == "model.norm.weight"
    assert len(merged) == 3
    assert PARAMS[0][1].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_merged_param_is_computed_in_float32_and_keeps_its_dtype():
    low = [(name, value.bfloat16()) for name, value in PARAMS]
    low[0] = (low[0][0], tensor([[256.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16))

    merged = dict(checkpoint_params(low, lora_scaling=0.5))[
        "model.layers.0.self_attn.q_proj.weight"
    ]

    # 256 + 0.5 * 3 = 257.5, between the bfloat16 numbers 256 and 258.
    assert merged.dtype == torch.bfloat16
    assert merged[0].tolist() == [258.0, 3.0]


def test_adapters_without_a_scaling_are_refused():
    with pytest.raises(ConfigError, match="give lora_scaling"):
        list(checkpoint_params(PARAMS))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        (PARAMS[2:], "before the params that it adapts"),
        ([PARAMS[0], PARAMS[4]], "adapters of .* are expected where"),
        ([("x.lora_embedding_A.default", tensor([1.0]))], "no LoRA matrix"),
        ([("x.modules_to_save.default.weight", tensor([1.0]))], "no LoRA matrix"),
    ],
)
def test_adapters_that_cannot_be_merged_are_refused(params, reason):
    with pytest.raises(ConfigError, match=reason):
        list(checkpoint_params(params, lora_scaling=1.0))


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
    assert [n for n, _ in checkpoint_params([(name, tensor([0.0]))])] == [plain]


def test_an_adapter_has_the_names_that_peft_reads():
    assert [name for name, _ in adapter_params(PARAMS)] == [
        f"{Q}.lora_A.weight",
        f"{Q}.lora_B.weight",
    ]
