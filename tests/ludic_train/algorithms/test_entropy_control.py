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
    ClipCovLoss,
    KLCovLoss,
    RandomCovariance,
    TopCovariance,
    covariances,
)
from ludic_train.algorithms.losses import ReinforceLoss, TokenClippedSurrogateLoss
from ludic_train.algorithms.variants import clip_cov, kl_cov, with_target_entropy
from ludic_train.errors import MissingAttachment, MissingLogprobs
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import ENTROPY_COEFFICIENT, SELECTED, SAWItem


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


# Means 0.5 and -2: covariances are .5 * 1, .5 * -1, -.5 * 1.5 and -.5 * -1.5.
ROWS = [row([1.0, 1.0], [-1.0, -3.0]), row([0.0, 0.0], [-0.5, -3.5])]


def flags(items):
    return [item.attachments[SELECTED].tolist() for item in items]


def test_covariances_are_over_the_sampled_tokens_of_the_batch():
    assert covariances(ROWS).tolist() == pytest.approx([0.5, -0.5, -0.75, 0.75])


def test_the_top_share_is_selected_at_least_one_token():
    assert flags(TopCovariance(1e-6)(ROWS)) == [[0, 0, 0], [0, 0, 1]]
    assert flags(TopCovariance(0.74)(ROWS)) == [[0, 1, 0], [0, 0, 1]]


def test_of_no_items_none_is_selected():
    assert TopCovariance()([]) == []
    assert RandomCovariance()([]) == []


def test_a_random_choice_stays_within_its_bounds_and_repeats():
    both = RandomCovariance(1.0, 0.4, 0.8)
    assert flags(both(ROWS)) == [[0, 1, 0], [0, 0, 1]]
    assert flags(RandomCovariance(1.0, 0.6, 0.8)(ROWS)) == [[0, 0, 0], [0, 0, 1]]
    assert flags(RandomCovariance(1.0, 1.0, 5.0)(ROWS)) == [[0, 0, 0], [0, 0, 0]]
    one = [RandomCovariance(0.3, 0.4, 0.8, seed=seed) for seed in range(20)]
    chosen = [flags(each(ROWS)) for each in one]
    assert chosen == [flags(each(ROWS)) for each in one]
    assert [sum(map(sum, c)) for c in chosen] == [1] * 20
    # Either token comes up.
    assert len({str(c) for c in chosen}) == 2


def selected_batch():
    known = golden.batch(token_mean)
    chosen = torch.zeros_like(known.weight)
    chosen[[1, 5, 12]] = 1
    return known.with_attachment(SELECTED, chosen), chosen


def test_clip_cov_leaves_selected_tokens_out_of_the_loss_alone():
    known, chosen = selected_batch()
    _, plain = golden.value_and_grad(TokenClippedSurrogateLoss(), known)
    _, found = golden.value_and_grad(ClipCovLoss(TokenClippedSurrogateLoss()), known)
    torch.testing.assert_close(found, plain * (1 - chosen))


def test_kl_cov_pulls_selected_tokens_back_to_the_sampler():
    known, chosen = selected_batch()
    value, grad = golden.value_and_grad(KLCovLoss(2.0), known)
    log = golden.tokens("new_logp") - known.behavior_logprobs
    assert value == pytest.approx(float((2 * known.scale * chosen * (log.exp() - 1 - log)).sum()))
    torch.testing.assert_close(grad, 2 * known.scale * chosen * (log.exp() - 1))


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
        algo = with_target_entropy(kl_cov(share=0.2), 50.0, step=0.01)
        return Trainer(tiny_model(), algo, Fixed(random_rows(4)), cfg=settings())

    first, seen = trainer(), []
    await first.train(2, lambda v, m: seen.append(m["entropy_coefficient"].value))
    state = json.loads(json.dumps(first.state_dict()))
    second = trainer()
    second.load_state_dict(state)
    await second.train(1, lambda v, m: seen.append(m["entropy_coefficient"].value))
    assert seen == pytest.approx([0.01, 0.02, 0.03])
    # What refined the rows before still does.
    assert second.algo.refine.first == TopCovariance(0.2)


def test_what_a_selection_needs_is_named():
    with pytest.raises(MissingLogprobs, match="control of entropy"):
        TopCovariance()([replace(ROWS[0], behavior_logprobs=None)])
    for loss in (ClipCovLoss(ReinforceLoss()), KLCovLoss()):
        with pytest.raises(MissingAttachment, match="selected"):
            loss(golden.forward(), golden.batch(token_mean))


@pytest.mark.parametrize("made", [clip_cov(share=0.2, cov_low=0.0), kl_cov(share=0.2)])
async def test_presets_train_with_several_updates_of_a_batch(made):
    cfg = replace(settings(), epochs=2, lr=1e-3)
    trainer, shares = Trainer(tiny_model(), made, Fixed(random_rows(8)), cfg=cfg), []
    await trainer.train(4, lambda version, m: shares.append(m["selected"].value))
    assert all(0 < share <= 0.2 for share in shares)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TopCovariance(0.0),
        lambda: RandomCovariance(1.5),
        lambda: RandomCovariance(low=2.0, high=1.0),
        lambda: KLCovLoss(-1.0),
        lambda: AdaptiveEntropy(0.0),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ConfigError):
        make()
