import math
from dataclasses import replace

import numpy as np
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
    KTOBaseline,
    KTOLoss,
    dpo,
    kto,
    liked_rows,
    preference_rows,
)
from ludic_train.errors import LossError, MissingAttachment, UntrainableRollout
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import Execution
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.prepare import plan_rows
from ludic_train.trainer.step import forward
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import KL_BASELINE, PROXIMAL, REFERENCE, LossBatch, TokenLogprobs


def said(*tokens, prompt=(3, 4)):
    """A rollout of one reply, recorded without log-probs."""
    return rollout((call(prompt, tokens, logprobs=None),))


PAIRS = [(said(5, 6), said(7, 8, 9)), (said(10), said(11, 12)), (said(5, 9, 9), said(6))]


def given_tokens(logprobs, ref, weights, rollouts, **attached):
    new = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    numbers = torch.tensor(rollouts)
    many = int(numbers.max()) + 1
    streams = {REFERENCE: ref, **attached}
    known = LossBatch(
        weight=torch.tensor(weights, dtype=torch.float64),
        scale=torch.full((len(logprobs),), 1 / many, dtype=torch.float64),
        rollout=numbers,
        num_rollouts=many,
        attachments={n: torch.tensor(v, dtype=torch.float64) for n, v in streams.items()},
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


def test_kto_by_hand():
    # h of the liked rollout .4, of the disliked one -.3; z .1, beta 2, weights 1 and 3:
    # 1 - sigmoid(2 * .3) and 3 (1 - sigmoid(-2 * -.4)).
    out, known = given_tokens(
        [-1.0, -2.0, -1.5],
        [-1.3, -2.1, -1.2],
        [1, 1, -3],
        [0, 0, 1],
        **{KL_BASELINE: [0.1, 0.1, 0.1]},
    )
    value, _ = KTOLoss(2.0)(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    s, u = 1 / (1 + math.exp(-0.6)), 1 / (1 + math.exp(-0.8))
    assert value.item() == pytest.approx(((1 - s) + 3 * (1 - u)) / 2)
    # d/dh: -beta s (1 - s) for the liked one, + 3 beta u (1 - u) for the other.
    liked, disliked = -2 * s * (1 - s) / 2, 3 * 2 * u * (1 - u) / 2
    assert grad.tolist() == pytest.approx([liked, liked, disliked])


@pytest.mark.parametrize("moved", [0.25, -0.25])
def test_the_baseline_of_kto_is_the_mean_log_ratio_and_never_negative(moved):
    rows = liked_rows([(said(5, 6), True), (said(7, 8, 9), False)])
    rows = [
        replace(
            row,
            attachments={
                REFERENCE: np.zeros(len(row.input_ids), np.float32),
                PROXIMAL: (moved * row.action_mask).astype(np.float32),
            },
        )
        for row in rows
    ]
    found = KTOBaseline()(rows)
    # (2 + 3) / 2 tokens per rollout, at sampled tokens alone.
    assert found[0].attachments[KL_BASELINE].tolist() == [0, 0, *[max(2.5 * moved, 0)] * 2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("algo", "epochs"), [(dpo(beta=0.5), 2), (kto(beta=0.5), 1)], ids=["dpo", "kto"]
)
async def test_a_model_learns_to_prefer(algo, epochs):
    model, cfg = tiny_model(), replace(settings(), lr=3e-3, epochs=epochs)
    liked = [(r, good) for pair in PAIRS for r, good in zip(pair, (True, False), strict=True)]
    rows = preference_rows(PAIRS) if algo.name == "dpo" else liked_rows(liked)
    source = OfflineBatchSource(rows, batch_size=3 if algo.name == "dpo" else 6)
    before = gaps(model)
    await Trainer(model, algo, source, cfg=cfg, reference=tiny_model()).train(40)
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
    for loss in (DPOLoss(), KTOLoss()):
        with pytest.raises(MissingAttachment, match=REFERENCE):
            loss(out, replace(known, attachments={}))
        with pytest.raises(LossError, match="whole rollouts"):
            loss(out, replace(known, whole=False))
    with pytest.raises(MissingAttachment, match="kto"):
        KTOBaseline()(preference_rows(PAIRS))
    with pytest.raises(UntrainableRollout, match="no model call"):
        preference_rows([(said(5), rollout(()))])


@pytest.mark.parametrize("make", [lambda: DPOLoss(0.0), lambda: liked_rows([], liked=-1.0)])
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_rows_of_several_calls_are_different_pairs_and_rollouts():
    pairs = [*preference_rows(PAIRS[:1]), *preference_rows(PAIRS[1:2])]
    judged = [*liked_rows([(said(5), True)]), *liked_rows([(said(6), False)])]
    assert len(by_sequence(pairs)) == len(by_sequence(judged)) == 2


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
