import pytest
import torch

from ludic_train.aggregation import sequence_mean, token_mean
from ludic_train.algorithms import make_grpo, make_reinforce, make_sft
from ludic_train.credit import ConstantCredit, GroupNormalizedReturn, MonteCarloReturn
from ludic_train.losses import (
    CompositeLoss,
    EntropyBonus,
    LossBatch,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    TokenClippedSurrogateLoss,
    TokenLogprobs,
)


def test_reinforce_sets_what_its_docstring_says():
    algo = make_reinforce(gamma=0.9, max_ratio=2.0)
    assert algo.credit_assigner == MonteCarloReturn(0.9)
    assert algo.loss == ReinforceLoss(2.0)
    assert (algo.aggregation, algo.preprocess) == (token_mean, None)


def test_grpo_sets_what_its_docstring_says():
    algo = make_grpo(clip=0.3, dual_clip=3.0, entropy=0.01)
    assert algo.credit_assigner == GroupNormalizedReturn()
    clipped = TokenClippedSurrogateLoss(0.3, 0.3, 3.0)
    assert algo.loss == CompositeLoss((clipped, EntropyBonus(0.01)))
    assert algo.aggregation is sequence_mean
    assert algo.preprocess is not None


def test_sft_sets_what_its_docstring_says():
    algo = make_sft()
    assert algo.credit_assigner == ConstantCredit(1.0)
    assert algo.loss == MaskedCausalLMCrossEntropyLoss()


@pytest.mark.parametrize("algo", [make_reinforce(), make_reinforce(max_ratio=2.0), make_grpo()])
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
        row=torch.arange(2),
        num_rows=2,
        behavior_logprobs=logprobs.detach(),
    )
    loss, _ = algo.loss(TokenLogprobs(logprobs=logprobs, entropy=logprobs), known)
    (grad,) = torch.autograd.grad(loss, z)
    assert grad.item() == pytest.approx(-(p * (1 - p)).item(), abs=1e-12)
