import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from two_ranks.learning import tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.models.modules import (
    blocks,
    is_adapted,
    is_adapted_layer,
    is_expert_adapter,
    is_lora_layer,
)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.down_proj = nn.Parameter(torch.zeros(2, 4, 4))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.q_proj = Experts(), nn.Linear(4, 4)


def last_names(model, kind):
    return {name.rpartition(".")[2] for name, module in model.named_modules() if kind(module)}


def test_kinds_of_modules_with_and_without_adapters():
    assert not is_adapted(Model())
    config = LoraConfig(r=2, target_modules=["q_proj"], target_parameters=["experts.down_proj"])
    model = get_peft_model(Model(), config)
    assert is_adapted(model)
    assert last_names(model, is_adapted_layer) == {"q_proj", "experts"}
    assert last_names(model, is_lora_layer) == {"q_proj", "experts"}
    assert last_names(model, is_expert_adapter) == {"experts"}


def test_blocks_are_those_of_the_decoder():
    model = tiny_model()
    assert blocks(model) == list(model.model.layers)
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(ConfigError, match="0 lists of modules"):
        blocks(model)
