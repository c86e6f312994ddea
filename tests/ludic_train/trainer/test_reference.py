"""The reference of a KL term is the model as it began."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from two_ranks.learning import random_rows, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.kl import TokenKLLoss
from ludic_train.algorithms.losses import CompositeLoss
from ludic_train.algorithms.presets import sft
from ludic_train.trainer.reference import reference_model, start_of
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REFERENCE

NEAR = sft(loss=CompositeLoss((sft().loss, TokenKLLoss(0.1))), attach=frozenset({REFERENCE}))


def given_adapter():
    """A model whose adapter was trained before."""
    config = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["norm"])
    model = get_peft_model(tiny_model(), config)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.add_(torch.randn(param.shape, generator=noise) * 0.2)
    return model


def test_before_the_first_step_a_trained_adapter_is_its_own_reference():
    trainer = Trainer(given_adapter(), NEAR, None, cfg=settings())
    first, second = (trainer.update(random_rows(6))[0]["reference_kl"].value for _ in range(2))
    assert first == pytest.approx(0.0, abs=1e-9)
    assert second > 1e-9


def test_the_reference_of_an_adapter_is_as_a_copy_made_at_the_start():
    model = given_adapter()
    with_copy = Trainer(
        copy.deepcopy(model), NEAR, None, cfg=settings(), reference=copy.deepcopy(model)
    )
    alone = Trainer(model, NEAR, None, cfg=settings())
    for _ in range(3):
        expected, found = (t.update(random_rows(6))[0]["reference_kl"] for t in (with_copy, alone))
        assert found.value == pytest.approx(expected.value, rel=1e-5, abs=1e-9)
    for a, b in zip(with_copy.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_the_model_trains_on_with_the_params_it_had():
    model = given_adapter()
    start = start_of(model)
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.mul_(1.7)
    before = copy.deepcopy(model.state_dict())

    def fail_in_between():
        with reference_model(model, start, "x") as judge:
            assert all(torch.equal(judge.get_parameter(name), then) for name, then in start.items())
            raise KeyError("in between")

    with pytest.raises(KeyError, match="in between"):
        fail_in_between()
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


def test_a_whole_model_needs_a_reference_of_its_own():
    with pytest.raises(ConfigError, match="there is none"):
        Trainer(tiny_model(), NEAR, None, cfg=settings()).update(random_rows(2))
