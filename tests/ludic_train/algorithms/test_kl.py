import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import losses as golden

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.kl import DistillationLoss, KLReward, TokenKLLoss, UnbiasedTokenKLLoss
from ludic_train.errors import MissingAttachment, MissingLogprobs
from ludic_train.types import PROXIMAL, REFERENCE, SAWItem


@pytest.mark.parametrize(
    ("name", "loss"), [("k2", TokenKLLoss(1.0)), ("k3 x ratio", UnbiasedTokenKLLoss(1.0))]
)
def test_loss_and_gradient_equal_the_published_ones(name, loss):
    value, grad = golden.value_and_grad(loss, golden.batch(token_mean))
    expected = golden.DATA["kl"][name]
    assert value == pytest.approx(expected["loss"], abs=1e-8, rel=1e-7)
    torch.testing.assert_close(grad.tolist(), expected["grad"], atol=1e-8, rtol=1e-7)


def test_on_policy_a_teacher_has_the_gradient_of_the_reverse_kl_token_by_token():
    # k2 has the gradient of the divergence; with a ratio of 1 the two agree.
    known = golden.batch(token_mean, sampler="new_logp")
    _, found = golden.value_and_grad(DistillationLoss(), known)
    _, expected = golden.value_and_grad(TokenKLLoss(1.0), known)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_metric_is_the_divergence_in_nats_whatever_the_coefficient():
    # the published k3 on these inputs, token mean
    _, metrics = TokenKLLoss(0.01)(golden.forward(), golden.batch(token_mean))
    total, count = metrics["reference_kl"]
    assert (total / count).item() == pytest.approx(0.12671293, abs=1e-8)


@pytest.mark.parametrize("loss", [TokenKLLoss(), UnbiasedTokenKLLoss()])
def test_missing_reference_logprobs_are_refused(loss):
    known = golden.batch(token_mean)
    bare = replace(known, attachments={PROXIMAL: known.attachments[PROXIMAL]})
    with pytest.raises(MissingAttachment, match=REFERENCE):
        loss(golden.forward(), bare)


@pytest.mark.parametrize("make", [TokenKLLoss, UnbiasedTokenKLLoss, KLReward])
@pytest.mark.parametrize("coefficient", [0.0, -1.0, math.inf])
def test_impossible_coefficients_are_refused(make, coefficient):
    with pytest.raises(ConfigError, match="coefficient"):
        make(coefficient)


def row(weight, behavior, reference):
    mask = np.array([False, True, False, True])
    return SAWItem(
        input_ids=np.array([5, 6, 7, 8], np.int32),
        action_mask=mask,
        weight=np.where(mask, weight, 0).astype(np.float32),
        behavior_logprobs=np.array(behavior, np.float32),
        attachments={REFERENCE: np.array(reference, np.float32)},
    )


def test_as_a_reward_each_token_answers_for_the_divergence_that_follows_it():
    # d = -1 + 3 = 2 at the first token, -2 + 1 = -1 at the last; 2 - 1 = 1 from the first on.
    (found,) = KLReward(0.1)([row(1.0, [0, -1, 0, -2], [0, -3, 0, -1])])
    np.testing.assert_allclose(found.weight, [0, 1 - 0.1 * 1, 0, 1 - 0.1 * -1])


def test_the_reward_needs_a_reference_and_the_samplers_log_probs():
    whole = row(1.0, [0, -1, 0, -2], [0, -3, 0, -1])
    with pytest.raises(MissingAttachment, match="a row has nothing attached"):
        KLReward()([replace(whole, attachments={})])
    with pytest.raises(MissingLogprobs, match="use TokenKLLoss"):
        KLReward()([replace(whole, behavior_logprobs=None)])
