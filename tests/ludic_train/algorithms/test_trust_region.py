import math
from dataclasses import replace

import pytest
import torch
from golden import losses as golden

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import sequence_mean, token_mean
from ludic_train.algorithms.losses import SequenceReinforceLoss
from ludic_train.algorithms.trust_region import DPPOLoss, GMPOLoss, SAPOLoss
from ludic_train.errors import LossError, MissingLogprobs
from ludic_train.types import LossBatch, TokenLogprobs

ALL = [DPPOLoss(), SAPOLoss(), GMPOLoss(), SequenceReinforceLoss()]


def given(logprobs, behavior, weights, rollouts=None):
    """A batch of scale 1 per token, of one rollout unless `rollouts` says otherwise."""
    new = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    numbers = torch.tensor(rollouts or [0] * len(logprobs))
    known = LossBatch(
        weight=torch.tensor(weights, dtype=torch.float64),
        scale=torch.ones(len(logprobs), dtype=torch.float64),
        rollout=numbers,
        num_rollouts=int(numbers.max()) + 1,
        behavior_logprobs=torch.tensor(behavior, dtype=torch.float64),
    )
    return TokenLogprobs(new, torch.zeros_like(new)), known


def grads(loss, out, known):
    value, metrics = loss(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    shares = {name: (total / count).item() for name, (total, count) in metrics.items()}
    return value.item(), grad.tolist(), shares


@pytest.mark.parametrize(
    ("new", "old", "weight", "kept"),
    [
        # Ratios 1.3, of which PPO forgets the rare token's, by the size of the move.
        (0.65, 0.5, 1.0, True),
        (0.65, 0.4, 1.0, False),
        (0.0013, 0.001, 1.0, True),
        (0.05, 0.001, 1.0, True),
        # Moves against the weight are always taken back.
        (0.65, 0.4, -1.0, True),
        (0.4, 0.65, 1.0, True),
        (0.4, 0.65, -1.0, False),
        (0.5, 0.65, -1.0, False),
        (0.55, 0.65, -1.0, True),
    ],
)
def test_dppo_leaves_out_what_moved_too_far_with_its_weight(new, old, weight, kept):
    out, known = given([math.log(new)], [math.log(old)], [weight])
    value, (grad,), shares = grads(DPPOLoss(low=0.12, high=0.2), out, known)
    ratio = min(new / old, 20.0)
    assert grad == pytest.approx(-weight * ratio * kept)
    assert value == pytest.approx(-weight * ratio * kept * math.log(new))
    assert shares["masked"] == float(not kept)


def test_dppo_equals_the_published_gradient():
    # prime-rl's loss on the golden numbers without its squared term: -A r per kept token.
    known = golden.batch(token_mean, sampler="infer_logp")
    _, grad = golden.value_and_grad(DPPOLoss(), known)
    new, old = golden.tokens("new_logp"), golden.tokens("infer_logp")
    moved = new.exp() - old.exp()
    kept = ~((known.weight > 0) & (moved > 0.2) | (known.weight < 0) & (moved < -0.2))
    torch.testing.assert_close(grad, -known.scale * known.weight * kept * (new - old).exp())
    assert 0 < kept.sum() < len(kept)


@pytest.mark.parametrize(("ratio", "weight"), [(1.0, 2.0), (1.0, -2.0), (1.5, 2.0), (0.5, -2.0)])
def test_sapo_has_the_slope_of_its_gate(ratio, weight):
    # d/dlp of -A (4 / tau) sigmoid(tau (r - 1)) is -A r * 4 s (1 - s), s the sigmoid.
    out, known = given([math.log(ratio) - 1], [-1.0], [weight])
    value, (grad,), shares = grads(SAPOLoss(), out, known)
    tau = 1.0 if weight > 0 else 1.05
    s = 1 / (1 + math.exp(-tau * (ratio - 1)))
    assert value == pytest.approx(-weight * 4 / tau * s)
    assert grad == pytest.approx(-weight * ratio * 4 * s * (1 - s))
    assert shares["gate"] == pytest.approx(4 * s * (1 - s))


def test_gmpo_takes_the_geometric_mean_of_clipped_ratios():
    # Logs of ratios 0.1 and 0.7 with a positive weight: the second counts as 0.4 and does not
    # learn. s = exp(0.25); the first token has the gradient -A s.
    out, known = given([-0.9, -0.3], [-1.0, -1.0], [2.0, 2.0])
    value, grad, shares = grads(GMPOLoss(), out, known)
    s = math.exp(0.25)
    assert value == pytest.approx(-4 * s)
    assert grad == pytest.approx([-2 * s, 0.0])
    assert shares == {"clip_low": 0.0, "clip_high": 0.5}
    # The same with a negative weight is not clipped on that side: exp(0.4).
    _, grad, _ = grads(GMPOLoss(), *given([-0.9, -0.3], [-1.0, -1.0], [-2.0, -2.0]))
    assert grad == pytest.approx([2 * math.exp(0.4)] * 2)


def test_gmpo_has_the_gradient_of_the_paper_s_form():
    # -A exp(mean of c_t), one term per rollout.
    known = golden.batch(sequence_mean)
    _, grad = golden.value_and_grad(GMPOLoss(0.2), known)
    lp = golden.tokens("new_logp").requires_grad_()
    sign = known.weight.sign()
    log = lp - known.behavior_logprobs
    kept = sign * torch.minimum(sign * log, sign * log.clamp(-0.2, 0.2))
    rows = [known.rollout == i for i in range(4)]
    total = sum(-known.weight[r][0] * kept[r].mean().exp() for r in rows) / 4
    torch.testing.assert_close(grad, torch.autograd.grad(total, lp)[0], atol=1e-7, rtol=1e-6)


def test_reinforce_by_sequence_weighs_each_rollout_by_its_product():
    # Ratios 2 and 3 make 6, truncated to 5; 1/2 alone stays.
    logs = [math.log(2), math.log(3), math.log(0.5)]
    out, known = given([x - 4 for x in logs], [-4.0] * 3, [1.0, 2.0, 3.0], [0, 0, 1])
    _, grad, shares = grads(SequenceReinforceLoss(), out, known)
    assert grad == pytest.approx([-5.0, -10.0, -1.5])
    assert shares["truncated"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_the_sampler_s_logprobs_and_whole_rollouts_are_needed(loss):
    out, known = given([-1.0], [-1.0], [1.0])
    with pytest.raises(MissingLogprobs):
        loss(out, replace(known, behavior_logprobs=None))
    if isinstance(loss, GMPOLoss | SequenceReinforceLoss):
        with pytest.raises(LossError, match="whole rollouts"):
            loss(out, replace(known, whole=False))


@pytest.mark.parametrize("weight", [1.0, -1.0])
@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_a_runaway_ratio_gives_finite_gradients(loss, weight):
    for behavior in (-1e4, -math.inf, -1e-9):
        value, grad, _ = grads(loss, *given([-0.1, -9e3], [behavior, -1.0], [weight] * 2))
        assert math.isfinite(value)
        assert all(map(math.isfinite, grad))


@pytest.mark.parametrize(
    "make",
    [
        lambda: DPPOLoss(low=0.0),
        lambda: DPPOLoss(high=1.5),
        lambda: DPPOLoss(max_ratio=0.5),
        lambda: SAPOLoss(tau_negative=0.0),
        lambda: GMPOLoss(clip=-0.1),
        lambda: SequenceReinforceLoss(math.inf),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ConfigError):
        make()
