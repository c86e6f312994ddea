"""Adapters learn; what they are put on never changes."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_train.algorithms.presets import grpo
from ludic_train.trainer.trainer import Trainer


class Collector:
    """A publisher that reads every param, as one that sends them away does."""

    def __init__(self):
        self.base = []

    async def publish(self, params, version):
        self.base.append({n: p.clone() for n, p in params if "lora_" not in n})


@pytest.mark.parametrize("updates", [30, pytest.param(300, marks=pytest.mark.slow)])
async def test_the_base_stays_bit_for_bit_the_same_over_many_publications(updates):
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(tiny_model(), config)
    adapters = [p for p in model.parameters() if p.requires_grad]
    before = [p.clone() for p in adapters]
    collector = Collector()
    trainer = Trainer(model, grpo(), Fixed(random_rows(4)), collector, settings())
    await trainer.train(updates)
    assert len(collector.base) == updates + 1
    first = collector.base[0]
    for published in collector.base:
        assert all(torch.equal(published[name], first[name]) for name in first)
    assert not any(torch.equal(a, b) for a, b in zip(before, adapters, strict=True))
