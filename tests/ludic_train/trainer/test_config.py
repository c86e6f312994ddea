"""Settings of a trainer with which no update could be made."""

import math

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.trainer.config import AdamW, TrainerConfig


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"bits": 16}, "bits is 16"),
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
    ("lr", "reason"), [(0.0, "lr=0.0"), (math.nan, "lr=nan"), (math.inf, "lr=inf")]
)
def test_a_rate_is_positive_and_finite(lr, reason):
    with pytest.raises(ConfigError, match=reason):
        TrainerConfig(lr=lr)


def test_a_norm_without_a_limit_leaves_gradients_as_they_are():
    assert TrainerConfig(max_grad_norm=math.inf).max_grad_norm == math.inf
