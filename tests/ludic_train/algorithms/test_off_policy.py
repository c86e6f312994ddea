import math
from dataclasses import replace

import pytest
import torch
from golden import losses as golden

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import ConstantLength, token_mean
from ludic_train.algorithms.losses import ReinforceLoss, TokenClippedSurrogateLoss, fetch_metrics
from ludic_train.algorithms.off_policy import (
    Corrected,
    GeometricMask,
    SequenceMask,
    SequenceTruncation,
    TokenMask,
    TokenTruncation,
    mismatch,
    without_empty_lags,
)
from ludic_train.errors import MissingAttachment, MissingLogprobs
from ludic_train.metrics import values
from ludic_train.types import PROXIMAL, TokenLogprobs


def expected(name):
    numbers = golden.DATA["corrections"][name]
    return numbers if len(numbers) == 14 else golden.per_token(numbers).tolist()


@pytest.mark.parametrize(
    ("name", "correction"),
    [
        ("tis token 2", TokenTruncation(2.0)),
        ("token mask .5 2", TokenMask(0.5, 2.0)),
        ("tis sequence 2", SequenceTruncation(2.0)),
        ("sequence mask 3", SequenceMask(3.0)),
    ],
)
def test_factors_equal_the_published_ones(name, correction):
    known = golden.batch(token_mean, sampler="infer_logp")
    factor = correction(golden.tokens("old_logp") - golden.tokens("infer_logp"), known)
    torch.testing.assert_close(factor.tolist(), expected(name), rtol=1e-9, atol=1e-12)


def test_masks_drop_whole_rows():
    known = golden.batch(token_mean)
    log_weight = golden.tokens("old_logp") - golden.tokens("infer_logp")
    # published geometric means 1.10, 0.90, 1.56, 0.75; products 1.34, 0.59, 2.44, 0.32
    kept = GeometricMask(0.8, 1.2)(log_weight, known)
    assert kept.tolist() == [1.0] * 8 + [0.0] * 6
    assert GeometricMask()(log_weight, known).tolist() == [0.0] * 14
    assert (SequenceMask(2.0)(log_weight, known) == 0).tolist() == [False] * 8 + [True] * 2 + [
        False
    ] * 4


def test_a_corrected_clipped_surrogate_is_decoupled_ppo():
    # the clip sees new / proximal, the factor min(proximal / sampler, 1.02) stands outside
    known = golden.batch(token_mean, sampler="infer_logp")
    value, grad = golden.value_and_grad(
        Corrected(TokenClippedSurrogateLoss(), TokenTruncation(1.02)), known
    )
    factor = torch.tensor(expected("tis token 2"), dtype=torch.float64).clamp(max=1.02)
    ratio = torch.exp(golden.tokens("new_logp") - golden.tokens("old_logp"))
    bound = torch.maximum(-known.weight * ratio, -known.weight * ratio.clamp(0.8, 1.2))
    assert value == pytest.approx((known.scale * factor * bound).sum().item())
    _, plain = golden.value_and_grad(TokenClippedSurrogateLoss(), golden.batch(token_mean))
    torch.testing.assert_close(grad, factor * plain)


def test_reinforce_with_the_ratio_of_whole_rows_equals_the_published_one():
    # one update from the sampler on: the proximal policy is the current one
    known = golden.batch(ConstantLength(1))
    known = replace(known, attachments={PROXIMAL: golden.tokens("new_logp")})
    value, grad = golden.value_and_grad(Corrected(ReinforceLoss(), SequenceTruncation(9e9)), known)
    published = golden.DATA["losses"]["reinforce sequence ratio"]
    assert grad.tolist() == pytest.approx(published["grad"], abs=1e-8)
    # the published value is s A per row, ours s A log-prob; gradients are what counts
    assert math.isfinite(value)


def test_a_correction_reports_what_it_dropped():
    known = golden.batch(token_mean, sampler="infer_logp")
    _, metrics = Corrected(ReinforceLoss(), TokenMask(0.5, 2.0))(golden.forward(), known)
    total, count = metrics["masked"]
    assert (total.item(), count.item()) == (2.0, 14.0)


def test_a_correction_needs_both_logprobs():
    loss = Corrected(ReinforceLoss(), TokenTruncation())
    known = golden.batch(token_mean)
    with pytest.raises(MissingAttachment, match=PROXIMAL):
        loss(golden.forward(), replace(known, attachments={}))
    with pytest.raises(MissingLogprobs):
        loss(golden.forward(), replace(known, behavior_logprobs=None))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenTruncation(1.0),
        lambda: TokenMask(1.2, 2.0),
        lambda: SequenceTruncation(math.inf),
        lambda: SequenceMask(0.5),
        lambda: GeometricMask(-0.1, 1.1),
    ],
)
def test_bounds_that_would_drop_agreement_are_refused(make):
    with pytest.raises(ConfigError, match="low < 1 < high"):
        make()


def two_tokens(ratios, lag=None):
    behavior = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    known = golden.sub_batch(golden.batch(token_mean), torch.arange(2))
    known = replace(known, behavior_logprobs=behavior, lag=lag and torch.tensor(lag))
    new = behavior + torch.tensor(ratios, dtype=torch.float64).log()
    return TokenLogprobs(new, new), known


def mismatch_metrics(out, known):
    return without_empty_lags(fetch_metrics([mismatch(out, known)])[0])


def test_mismatch_by_hand():
    metrics = values(mismatch_metrics(*two_tokens([1.0, 3.0], lag=[0, 4])))
    assert metrics == pytest.approx(
        {
            # k3 at ratio 1 is 0, at ratio 3 it is 3 - 1 - ln 3
            "mismatch/kl": (2 - math.log(3)) / 2,
            "mismatch/kl_at_lag_0": 0.0,
            "mismatch/ratio": 2.0,
            "mismatch/ratio_max": 3.0,
            "mismatch/ess": 16 / (2 * 10),
            "lag": 2.0,
            "lag_max": 4.0,
            "tokens/at_lag_0": 1.0,
            "tokens/at_lag_4-7": 1.0,
        }
    )


def test_what_is_unknown_is_left_out():
    out, known = two_tokens([1.0, 2.0])
    assert set(mismatch_metrics(out, known)) == {
        "mismatch/kl",
        "mismatch/ratio",
        "mismatch/ratio_max",
        "mismatch/ess",
    }
    assert mismatch_metrics(out, replace(known, behavior_logprobs=None)) == {}
