"""Settings of a trainer: those with which no update could be made, and the learning rate."""

import math
from dataclasses import replace

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.trainer.config import AdamW, Decay, TrainerConfig, cosine


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"betas": (0.9, 1.0)}, r"betas is \(0.9, 1.0\)"),
        ({"betas": (math.nan, 0.9)}, "betas is"),
        ({"eps": 0.0}, r"eps=0.0, weight_decay=0.0"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1"),
        ({"weight_decay": math.inf}, "weight_decay=inf"),
    ],
)
def test_an_optimizer_that_could_make_no_step_is_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        AdamW(**given)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"lr": 0.0}, "lr=0.0"),
        ({"lr": math.nan}, "lr=nan"),
        ({"lr": math.inf}, "lr=inf"),
        ({"minibatches": 0}, "minibatches=0"),
        ({"max_seq_len": 99, "micro_token_budget": 50}, "max_seq_len=99 exceeds"),
        ({"warmup_updates": -1}, "warmup_updates=-1"),
        ({"decay_updates": 0}, "decay_updates=0"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong, reason):
    with pytest.raises(ConfigError, match=reason):
        TrainerConfig(**wrong)


def test_the_learning_rate_warms_up_and_decays_by_hand():
    cfg = TrainerConfig(lr=1.0, warmup_updates=2, decay_updates=10, decay=Decay(to=0.1))
    rates = [cfg.learning_rate(done) for done in (0, 1, 5, 10, 99)]
    # 0.5 x (0.1 + 0.9 x 1.0), 1 x (0.1 + 0.9 x 0.9), 0.1 + 0.9 x 0.5, 0.1, 0.1
    assert rates == pytest.approx([0.5, 0.91, 0.55, 0.1, 0.1])
    falling = replace(cfg, lr=2.0, warmup_updates=0, decay=Decay(shape=cosine, to=0.0))
    # 1 + cos of 0, 45, 90 and 180 degrees.
    rates = [replace(falling, decay_updates=8).learning_rate(done) for done in (0, 2, 4, 8, 99)]
    assert rates == pytest.approx([2.0, 1.7071068, 1.0, 0.0, 0.0], abs=1e-7)
