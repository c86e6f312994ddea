import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import losses as golden
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.entropy_control import (
    AdaptiveEntropy,
    AdaptiveEntropyBonus,
    with_target_entropy,
)
from ludic_train.algorithms.kl import KLReward
from ludic_train.algorithms.presets import rloo
from ludic_train.errors import MissingLogprobs
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import ENTROPY_COEFFICIENT, REFERENCE, SAWItem


def row(weights, logprobs):
    """A prompt of one token, then one sampled token per number."""
    mask = np.arange(len(weights) + 1) > 0
    streams = (np.array([0.0, *numbers], np.float32) for numbers in (weights, logprobs))
    weight, behavior = streams
    return SAWItem(
        input_ids=np.zeros(len(mask), np.int32),
        action_mask=mask,
        weight=weight,
        behavior_logprobs=behavior,
    )


def coefficients(items):
    return [float(item.attachments[ENTROPY_COEFFICIENT].max()) for item in items]


def test_the_coefficient_rises_below_the_target_and_falls_above_it():
    low, high = [row([0.0], [-0.5])], [row([0.0], [-2.0])]
    control = AdaptiveEntropy(1.0, step=0.02, highest=0.05)
    given = [coefficients(control(rows))[0] for rows in (low, low, low, high, low, high, high)]
    # Inside: .02, .04, .05, .03, .05, .03, .01; above the target no bonus is given.
    assert given == pytest.approx([0.02, 0.04, 0.05, 0.0, 0.05, 0.0, 0.0])
    assert control.coefficient == pytest.approx(0.01)
    # Only sampled tokens carry it.
    assert control(low)[0].attachments[ENTROPY_COEFFICIENT][0] == 0


def test_the_bonus_pushes_entropy_up_by_its_coefficient():
    known = golden.batch(token_mean).with_attachment(
        ENTROPY_COEFFICIENT, torch.full((14,), 0.3, dtype=torch.float64)
    )
    entropy = torch.ones(14, dtype=torch.float64, requires_grad=True)
    out = replace(golden.forward(), entropy=entropy)
    value, metrics = AdaptiveEntropyBonus()(out, known)
    (grad,) = torch.autograd.grad(value, entropy)
    torch.testing.assert_close(grad, -0.3 * known.scale)
    assert metrics["entropy_coefficient"][0].item() == pytest.approx(14 * 0.3)


async def test_a_resumed_run_goes_on_with_its_coefficient():
    def trainer():
        penalized = rloo(attach=frozenset({REFERENCE}), refine=KLReward(0.1))
        algo = with_target_entropy(penalized, 50.0, step=0.01)
        source, reference = Fixed(random_rows(4)), tiny_model(1)
        return Trainer(tiny_model(), algo, source, cfg=settings(), reference=reference)

    first, seen = trainer(), []
    await first.train(2, lambda v, m: seen.append(m["entropy_coefficient"].value))
    state = json.loads(json.dumps(first.state_dict()))
    second = trainer()
    second.load_state_dict(state)
    await second.train(1, lambda v, m: seen.append(m["entropy_coefficient"].value))
    assert seen == pytest.approx([0.01, 0.02, 0.03])
    # What refined the rows before still does.
    assert second.algo.refine.first == KLReward(0.1)


def test_logprobs_of_the_sampler_are_needed():
    with pytest.raises(MissingLogprobs, match="control of entropy"):
        AdaptiveEntropy(1.0)([replace(row([0.0], [-0.5]), behavior_logprobs=None)])


def test_a_target_that_means_nothing_is_refused():
    with pytest.raises(ConfigError):
        AdaptiveEntropy(0.0)
