import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from ludic_train.models.adapters import is_adapted_layer, is_expert_adapter, is_lora_layer
from ludic_train.models.logprobs import is_adapted


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
