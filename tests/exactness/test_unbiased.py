"""Expected gradients of presets against the gradient of the expected reward, by enumeration.

Two prompts, rollouts of one or two tokens, every batch of two or three rollouts per prompt: groups
of equal rewards are among them, and batches in which all groups are such.
"""

import numpy as np
import pytest
from enumeration import (
    PARAMS,
    REFERENCES,
    SAMPLER,
    ascent,
    expected_gradient,
    expected_reward,
    off_by,
    outcomes,
)

from ludic_train.algorithms.aggregation import ConstantLength, token_mean
from ludic_train.algorithms.credit import ConstantCredit, GroupNormalizedReturn, LeaveOneOutReturn
from ludic_train.algorithms.filters import drop_zero_variance_groups
from ludic_train.algorithms.kl import KLReward, TokenKLLoss, UnbiasedTokenKLLoss
from ludic_train.algorithms.losses import CompositeLoss
from ludic_train.algorithms.presets import (
    cispo,
    dr_grpo,
    grpo,
    gspo,
    reinforce,
    reinforce_baseline,
    reinforce_plus_plus,
    rloo,
    scalerl,
)
from ludic_train.types import REFERENCE

TRUE = ascent(expected_reward)
SIZES = (2, 3)


@pytest.mark.parametrize("size", SIZES)
def test_rloo_has_the_gradient_of_the_expected_reward(size):
    np.testing.assert_allclose(-expected_gradient(rloo(), size=size), TRUE, atol=1e-8)


@pytest.mark.parametrize("size", SIZES)
def test_a_baseline_of_the_other_rollouts_moves_no_expected_gradient(size):
    algo = reinforce_baseline(aggregation=ConstantLength(1))
    np.testing.assert_allclose(-expected_gradient(algo, size=size), TRUE, atol=1e-8)


@pytest.mark.parametrize("size", SIZES)
def test_dr_grpo_has_that_gradient_times_a_constant(size):
    # (n - 1) / n, because a group's mean holds the rollout itself; 1 / max_tokens, its length.
    expected = (size - 1) / size / 2 * TRUE
    found = -expected_gradient(dr_grpo(max_tokens=2), size=size)
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("size", SIZES)
def test_rloo_weighed_by_sequence_is_exact_for_samples_of_another_policy(size):
    algo = rloo(max_sequence_ratio=1e3)
    np.testing.assert_allclose(
        -expected_gradient(algo, size=size, sampler=SAMPLER), TRUE, atol=1e-8
    )
    # Weights per token leave the prefixes to the sampler.
    tokens = -expected_gradient(rloo(max_ratio=1e3), sampler=SAMPLER)
    assert off_by(tokens, TRUE) > 0.1


# Each cause of bias alone, added to RLOO, and the presets as they are.
BIASES = {
    "std of the group": (lambda: rloo(credit=GroupNormalizedReturn()), 0.293),
    "mean over own tokens": (lambda: grpo(credit=LeaveOneOutReturn(), filter=None), 0.091),
    "mean over the batch's tokens": (lambda: rloo(aggregation=token_mean), 0.024),
    "groups dropped": (lambda: rloo(filter=drop_zero_variance_groups()), 0.073),
    "grpo": (grpo, 0.376),
    "gspo": (gspo, 0.376),
    "cispo": (cispo, 0.349),
    "scalerl": (scalerl, 0.315),
    "reinforce": (reinforce, 0.126),
    "reinforce++": (reinforce_plus_plus, 0.095),
}


@pytest.mark.parametrize("cause", BIASES)
def test_what_is_biased_is_off_by_the_documented_figure(cause, project):
    make_algo, figure = BIASES[cause]
    assert off_by(-expected_gradient(make_algo()), TRUE) == pytest.approx(figure, abs=6e-4)
    guide = (project / "docs/guides/training.md").read_text()
    assert f"| {figure:.3f} |" in guide


def given_the_prefixes(leaf, prefixes=None):
    """Sum of the tokens' KL to the reference, each given its prefix; prefixes are of `prefixes`.

    Prefixes carry no gradient. The mean over both prompts.
    """
    prefixes = PARAMS if prefixes is None else prefixes
    total = 0.0
    for prompt in range(len(PARAMS)):
        for place, weight in enumerate((1.0, 1 / (1 + np.exp(-prefixes[prompt][0])))):
            p, q = leaf[prompt, place].sigmoid(), 1 / (1 + np.exp(-REFERENCES[prompt][place]))
            total = total + weight * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log())
    return total / len(PARAMS)


def of_rollouts(leaf):
    """KL to the reference of whole rollouts, the mean over both prompts."""
    total = 0.0
    for prompt in range(len(PARAMS)):
        judged = {ending: lps for lps, ending in outcomes(REFERENCES, prompt)}
        for lps, ending in outcomes(leaf, prompt):
            total = total + sum(lps).exp() * (sum(lps) - sum(judged[ending]))
    return total / len(PARAMS)


def kl_alone(loss):
    """An algorithm of this loss alone, each rollout's tokens summed."""
    return rloo(
        credit=ConstantCredit(), loss=loss, aggregation=ConstantLength(1), attach={REFERENCE}
    )


@pytest.mark.parametrize("loss", [TokenKLLoss(1.0), UnbiasedTokenKLLoss(1.0)], ids=repr)
def test_kl_losses_have_the_gradient_of_the_divergence_given_the_prefixes(loss):
    found = expected_gradient(kl_alone(loss))
    np.testing.assert_allclose(found, ascent(given_the_prefixes), atol=1e-7)
    # That of whole rollouts is another: tokens decide which prefixes come.
    assert np.abs(found - ascent(of_rollouts)).max() > 0.01


def test_off_policy_the_prefixes_are_those_of_the_sampler():
    found = expected_gradient(kl_alone(UnbiasedTokenKLLoss(1.0)), sampler=SAMPLER)
    expected = ascent(lambda leaf: given_the_prefixes(leaf, SAMPLER))
    np.testing.assert_allclose(found, expected, atol=1e-7)
    biased = expected_gradient(kl_alone(TokenKLLoss(1.0)), sampler=SAMPLER)
    assert np.abs(biased - expected).max() > 0.01


def test_a_kl_reward_has_the_gradient_of_the_divergence_of_whole_rollouts():
    algo = rloo(attach=frozenset({REFERENCE}), refine=KLReward(0.5))
    expected = TRUE - 0.5 * ascent(of_rollouts)
    np.testing.assert_allclose(-expected_gradient(algo), expected, atol=1e-7)


def test_a_kl_loss_beside_rloo_adds_its_own_gradient_whatever_the_groups_earn():
    usual = rloo()
    algo = rloo(loss=CompositeLoss((usual.loss, TokenKLLoss(0.5))))
    expected = TRUE - 0.5 * ascent(given_the_prefixes)
    np.testing.assert_allclose(-expected_gradient(algo), expected, atol=1e-7)
