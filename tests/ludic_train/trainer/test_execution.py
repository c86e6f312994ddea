"""Settings that change memory and speed: tokens of a forward pass, entropies."""

from dataclasses import replace

import numpy as np
import pytest

from ludic_train.algorithms.presets import sft, with_entropy
from ludic_train.errors import LossError
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def tiny_model():
    tokenizer = make_tokenizer(["a b c"])
    return make_tiny_model(tokenizer, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1)


def row():
    ids, mask = np.array([5, 6, 7, 8], np.int32), np.array([False, False, True, True])
    return SAWItem(input_ids=ids, action_mask=mask, weight=mask.astype(np.float32))


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 4_096),
        ({"device": "cuda:1"}, 16_384),
        ({"max_seq_len": 5_000}, 5_000),
        ({"max_seq_len": 100, "micro_token_budget": 200}, 200),
    ],
)
def test_the_token_budget_suits_the_device_and_holds_the_longest_row(settings, tokens):
    assert TrainerConfig(**settings).token_budget == tokens


def test_entropies_can_be_switched_off_and_are_then_refused_to_losses():
    items, plain = [row()], sft()
    cfg = TrainerConfig(execution=Execution(entropy=False))
    (made,) = Trainer(tiny_model(), plain, None, cfg=cfg).update(items)
    assert "entropy" not in made
    assert "loss" in made
    algo = replace(plain, loss=with_entropy(plain.loss, 0.1))
    trainer = Trainer(tiny_model(), algo, None, cfg=cfg)
    with pytest.raises(LossError, match=r"\[0\] and should be one number per action token"):
        trainer.update(items)
