import math

import pytest
import torch
from trajectories import trajectory

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import (
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
)
from ludic_train.algorithms.batch_credit import (
    BatchCenteredReturn,
    ExponentialAdvantage,
    OverlongPenalty,
    SeatBaselineReturn,
    TokenWhitened,
)
from ludic_train.algorithms.composite import CompositeLoss
from ludic_train.algorithms.credit import (
    BatchScaledReturn,
    ConstantCredit,
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    LeaveOneOutReturn,
    MeanScaledReturn,
    MonteCarloReturn,
    PerStepReward,
)
from ludic_train.algorithms.kl import TopKDistillationLoss
from ludic_train.algorithms.losses import (
    CISPOLoss,
    EntropyBonus,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    SequenceClippedSurrogateLoss,
    SequenceReinforceLoss,
    TokenClippedSurrogateLoss,
)
from ludic_train.algorithms.presets import (
    awr,
    cispo,
    dapo,
    dr_grpo,
    grpo,
    gspo,
    ppo,
    reinforce,
    reinforce_baseline,
    reinforce_plus_plus,
    rloo,
    scalerl,
    self_play,
    sft,
)
from ludic_train.algorithms.trust_region import DPPOLoss, GMPOLoss, SAPOLoss
from ludic_train.algorithms.value_head import GAE, ValueLoss
from ludic_train.algorithms.variants import (
    dppo,
    gmpo,
    lite_ppo,
    max_rl,
    reinforce_plus_plus_baseline,
    sapo,
    top_k_distillation,
)
from ludic_train.types import RETURNS, REWARDS, VALUES, LossBatch, TokenLogprobs

CENTRED = GroupNormalizedReturn(divide_by_std=False)
CLIPPED = TokenClippedSurrogateLoss(0.2, 0.2)


def test_reinforce_sets_what_its_docstring_says():
    algo = reinforce(gamma=0.9, max_ratio=2.0)
    assert algo.credit == MonteCarloReturn(0.9)
    assert algo.loss == ReinforceLoss(2.0)
    assert (algo.aggregation, algo.filter) == (token_mean, None)


def test_grpo_sets_what_its_docstring_says():
    algo = grpo(clip=0.3, dual_clip=3.0, entropy=0.01)
    assert algo.credit == GroupNormalizedReturn()
    clipped = TokenClippedSurrogateLoss(0.3, 0.3, 3.0)
    assert algo.loss == CompositeLoss((clipped, EntropyBonus(0.01)))
    assert algo.aggregation is sequence_mean
    assert algo.filter is not None


def test_an_entropy_bonus_of_its_own_is_taken_as_it_is():
    falling = EntropyBonus(0.06, final=0.0, updates=100)
    assert grpo(entropy=falling).loss == CompositeLoss((CLIPPED, falling))


def test_sft_sets_what_its_docstring_says():
    algo = sft()
    assert algo.credit == ConstantCredit(1.0)
    assert algo.loss == MaskedCausalLMCrossEntropyLoss()


ON_POLICY = [
    reinforce(),
    reinforce(max_ratio=2.0),
    reinforce_baseline(),
    reinforce_plus_plus(),
    grpo(),
    dr_grpo(max_tokens=1),
    dapo(max_tokens=1, buffer=1),
    gspo(),
    cispo(),
    scalerl(),
    rloo(),
    rloo(max_sequence_ratio=2.0),
    reinforce_plus_plus_baseline(),
    lite_ppo(),
    max_rl(),
    dppo(),
    sapo(),
    gmpo(),
    self_play(),
    ppo(),
]


@pytest.mark.parametrize("algo", ON_POLICY, ids=lambda algo: algo.name)
def test_expected_gradient_on_a_two_token_policy_is_the_policy_gradient(algo):
    # pi(1) = p = sigmoid(z), reward 1 for token 1 and 0 for token 0, on policy. The gradient of
    # the expected reward p is p (1 - p); centring with any constant does not change it. Summing
    # over both tokens, each with its probability, gives the expectation exactly.
    z = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    p = torch.sigmoid(z)
    logprobs = torch.stack([torch.log1p(-p), torch.log(p)])
    probabilities = logprobs.detach().exp()
    known = LossBatch(
        weight=torch.tensor([0.0, 1.0], dtype=torch.float64) - 0.3,
        scale=probabilities,
        rollout=torch.arange(2),
        num_rollouts=2,
        behavior_logprobs=logprobs.detach(),
    )
    for name in (VALUES, RETURNS):
        known = known.with_attachment(name, torch.zeros_like(probabilities))
    out = TokenLogprobs(logprobs=logprobs, entropy=logprobs, values=torch.zeros_like(logprobs))
    loss, _ = algo.loss(out, known)
    (grad,) = torch.autograd.grad(loss, z)
    assert grad.item() == pytest.approx(-(p * (1 - p)).item(), abs=1e-12)


@pytest.mark.parametrize(
    ("algo", "credit", "loss", "aggregation"),
    [
        (reinforce_baseline(), BatchCenteredReturn(), ReinforceLoss(), token_mean),
        (reinforce_plus_plus(), TokenWhitened(), CLIPPED, token_mean),
        (rloo(), LeaveOneOutReturn(), ReinforceLoss(), ConstantLength(1)),
        (
            rloo(max_sequence_ratio=3.0),
            LeaveOneOutReturn(),
            SequenceReinforceLoss(3.0),
            ConstantLength(1),
        ),
        (reinforce_plus_plus_baseline(), TokenWhitened(CENTRED), CLIPPED, token_mean),
        (lite_ppo(), BatchScaledReturn(), CLIPPED, token_mean),
        (max_rl(), MeanScaledReturn(), ReinforceLoss(), ConstantLength(1)),
        (dppo(high=0.3), CENTRED, DPPOLoss(0.2, 0.3), token_mean),
        (sapo(), GroupNormalizedReturn(), SAPOLoss(), sequence_mean),
        (gmpo(), GroupNormalizedReturn(), GMPOLoss(), sequence_mean),
        (dr_grpo(max_tokens=7), CENTRED, CLIPPED, ConstantLength(7)),
        (
            dapo(max_tokens=9, buffer=3),
            OverlongPenalty(GroupNormalizedReturn(), 9, 3),
            TokenClippedSurrogateLoss(0.2, 0.28),
            token_mean,
        ),
        (
            gspo(),
            GroupNormalizedReturn(),
            SequenceClippedSurrogateLoss(3e-4, 4e-4),
            sequence_mean,
        ),
        (cispo(), GroupNormalizedReturn(), CISPOLoss(0.0, 5.0), token_mean),
        (scalerl(), HybridNormalizedReturn(), CISPOLoss(0.0, 5.0), prompt_mean),
        (ppo(), PerStepReward(), CompositeLoss((CLIPPED, ValueLoss(0.5, 0.2))), token_mean),
        (awr(), ExponentialAdvantage(CENTRED), MaskedCausalLMCrossEntropyLoss(), token_mean),
        (self_play(), SeatBaselineReturn(0.95), ReinforceLoss(), sequence_mean),
        (top_k_distillation(beta=0.5), ConstantCredit(), TopKDistillationLoss(0.5), token_mean),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_presets_set_what_their_docstrings_say(algo, credit, loss, aggregation):
    assert algo.credit == credit
    assert algo.loss == loss
    assert algo.aggregation == aggregation


def test_weights_of_tokens_and_of_rollouts_exclude_each_other():
    with pytest.raises(ConfigError, match=r"max_ratio=2\.0 .*max_sequence_ratio=3\.0"):
        rloo(max_ratio=2.0, max_sequence_ratio=3.0)


def test_presets_that_play_differently_say_so():
    assert dapo(max_tokens=2, buffer=1).full_batches
    recipe = scalerl()
    assert (recipe.retire_at, recipe.max_lag) == (0.9, 8)
    critic = ppo(lam=0.9)
    assert (critic.attach, critic.refine) == ({VALUES, REWARDS}, GAE(1.0, 0.9))


def test_imitation_by_advantage_moves_towards_the_better_token():
    # Two rollouts of a group, one per token, rewards 0 and 1: weights exp(-0.5) and exp(0.5).
    # Summed over both, the gradient of -sum_i w_i lp_i / 2 is (w_0 p - w_1 (1 - p)) / 2.
    algo = awr()
    (w0,), (w1,) = algo.credit([trajectory(0.0), trajectory(1.0)])
    z = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    p = torch.sigmoid(z)
    logprobs = torch.stack([torch.log1p(-p), torch.log(p)])
    known = LossBatch(
        weight=torch.tensor([w0, w1], dtype=torch.float64),
        scale=torch.full((2,), 0.5, dtype=torch.float64),
        rollout=torch.arange(2),
        num_rollouts=2,
    )
    loss, _ = algo.loss(TokenLogprobs(logprobs=logprobs, entropy=logprobs), known)
    (grad,) = torch.autograd.grad(loss, z)
    q = p.item()
    assert (w0, w1) == pytest.approx((math.exp(-0.5), math.exp(0.5)))
    assert grad.item() == pytest.approx((w0 * q - w1 * (1 - q)) / 2, abs=1e-12)
