import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trajectories import call, rollout
from two_ranks.learning import relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import ConstantLength, by_sequence
from ludic_train.algorithms.preferences import (
    DPOLoss,
    dpo,
    preference_rows,
)
from ludic_train.errors import LossError, MissingAttachment, UntrainableRollout
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import Execution
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.prepare import plan_rows
from ludic_train.trainer.step import forward
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REFERENCE, LossBatch, TokenLogprobs


def said(*tokens, prompt=(3, 4)):
    """A rollout of one reply, recorded without log-probs."""
    return rollout((call(prompt, tokens, logprobs=None),))


PAIRS = [(said(5, 6), said(7, 8, 9)), (said(10), said(11, 12)), (said(5, 9, 9), said(6))]


def given_tokens(logprobs, ref, weights, rollouts):
    new = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    numbers = torch.tensor(rollouts)
    many = int(numbers.max()) + 1
    known = LossBatch(
        weight=torch.tensor(weights, dtype=torch.float64),
        scale=torch.full((len(logprobs),), 1 / many, dtype=torch.float64),
        rollout=numbers,
        num_rollouts=many,
        attachments={REFERENCE: torch.tensor(ref, dtype=torch.float64)},
    )
    return TokenLogprobs(new, torch.zeros_like(new)), known


def test_dpo_by_hand():
    # One pair: chosen tokens moved by .3 and .1, the rejected one by .2: h_w - h_l = .2.
    # beta 2: margin .4, loss -log sigmoid(.4), slope -2 sigmoid(-.4) for chosen tokens.
    out, known = given_tokens([-1.0, -2.0, -1.5], [-1.3, -2.1, -1.7], [1, 1, -1], [0, 0, 0])
    value, metrics = DPOLoss(2.0)(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    slope = 2 / (1 + math.exp(0.4))
    assert value.item() == pytest.approx(math.log(1 + math.exp(-0.4)))
    assert grad.tolist() == pytest.approx([-slope, -slope, slope])
    shares = {name: (total / count).item() for name, (total, count) in metrics.items()}
    assert shares == pytest.approx({"margin": 0.4, "preferred": 1.0})


def test_pairs_count_once_however_long_they_are():
    # Margins .5 * 1 and -.5 * 1, in pairs of two and four tokens.
    out, known = given_tokens(
        [-1.0, -1.0, -1.0, -1.0, -1.0, -1.0],
        [-2.0, -1.0, -1.0, -1.0, -2.0, -1.0],
        [1, -1, 1, 1, -1, -1],
        [0, 0, 1, 1, 1, 1],
    )
    value, metrics = DPOLoss(0.5)(out, known)
    losses = [math.log(1 + math.exp(-m)) for m in (0.5, -0.5)]
    assert value.item() == pytest.approx(sum(losses) / 2)
    total, count = metrics["preferred"]
    assert (total.item(), count.item()) == pytest.approx((1.0, 2.0))


@pytest.mark.long
async def test_a_model_learns_to_prefer():
    model, cfg = tiny_model(), replace(settings(), lr=3e-3, epochs=2)
    source = OfflineBatchSource(preference_rows(PAIRS), batch_size=3)
    before = gaps(model)
    await Trainer(model, dpo(beta=0.5), source, cfg=cfg, reference=tiny_model()).train(40)
    assert all(after > first + 1 for after, first in zip(gaps(model), before, strict=True))


def gaps(model):
    """Log-prob of the chosen reply less that of the rejected one, of each pair."""
    found = []
    for pair in PAIRS:
        sums = []
        for row in preference_rows([pair]):
            ((alone,),) = plan_update([row], token_budget=100)
            sums.append(forward(model, alone).logprobs.sum().item())
        found.append(sums[0] - sums[1])
    return found


@given(budget=st.integers(16, 64))
def test_no_split_parts_a_pair(budget):
    ((*micro_batches,),) = plan_update(
        preference_rows(PAIRS), token_budget=budget, aggregation=ConstantLength(1)
    )
    assert all(m.whole for m in micro_batches)


def test_micro_batches_have_the_gradient_of_the_whole():
    grads = []
    for budget in (24, 4096):
        model = tiny_model()
        Trainer(model, dpo(), None, cfg=settings(budget), reference=tiny_model(1)).update(
            preference_rows(PAIRS)
        )
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert relative_error(*grads) < 1e-5


def test_what_is_missing_is_named():
    out, known = given_tokens([-1.0], [-1.0], [1.0], [0])
    with pytest.raises(MissingAttachment, match=REFERENCE):
        DPOLoss()(out, replace(known, attachments={}))
    with pytest.raises(LossError, match="whole rollouts"):
        DPOLoss()(out, replace(known, whole=False))
    with pytest.raises(ConfigError):
        DPOLoss(0.0)
    with pytest.raises(UntrainableRollout, match="no model call"):
        preference_rows([(said(5), rollout(()))])


def test_rows_of_several_calls_are_different_pairs():
    assert len(by_sequence([*preference_rows(PAIRS[:1]), *preference_rows(PAIRS[1:2])])) == 2


def test_a_pair_of_which_one_is_too_long_is_left_out_as_a_whole():
    # The chosen rollout alone would be made likelier without a limit.
    pairs = [PAIRS[0], (said(5), said(*range(6, 40)))]
    cfg = replace(settings(), max_seq_len=20)
    ((kept,), metrics) = plan_rows(
        preference_rows(pairs), tiny_model(), cfg, dpo(), version=0, execution=Execution()
    )
    assert [part.num_rollouts for part in kept] == [1]
    assert sum(len(part.weight) for part in kept) == 5
    assert (metrics["rows"].value, metrics["rows/overlong"].value) == (2, 2)
