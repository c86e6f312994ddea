import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import losses as golden
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import (
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
)
from ludic_train.algorithms.losses import (
    CISPOLoss,
    CompositeLoss,
    EntropyBonus,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    SequenceClippedSurrogateLoss,
    SequenceReinforceLoss,
    TokenClippedSurrogateLoss,
    attachment,
)
from ludic_train.algorithms.presets import sft
from ludic_train.errors import LossError, MissingAttachment, MissingLogprobs
from ludic_train.types import LossBatch, SAWItem, TokenLogprobs

PPO = TokenClippedSurrogateLoss(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
SFT = MaskedCausalLMCrossEntropyLoss()
GSPO = SequenceClippedSurrogateLoss(clip_low=0.2, clip_high=0.28)
CORE = [PPO, TokenClippedSurrogateLoss(), ReinforceLoss(), ReinforceLoss(max_ratio=1.0), SFT]
WITHOUT_ROWS = [*CORE, CISPOLoss()]
ALL = [*WITHOUT_ROWS, GSPO, SequenceReinforceLoss()]
OF_RATIOS = [PPO, GSPO, CISPOLoss(), ReinforceLoss(max_ratio=2.0), SequenceReinforceLoss()]


def one_token(logprob=-1.0, behavior=-1.0, weight=1.0, entropy=0.0, dtype=torch.float64):
    """A batch of one token, of scale 1."""
    out = TokenLogprobs(
        logprobs=torch.tensor([logprob], dtype=dtype, requires_grad=True),
        entropy=torch.tensor([entropy], dtype=dtype, requires_grad=True),
    )
    known = LossBatch(
        weight=torch.tensor([weight], dtype=dtype),
        scale=torch.ones(1, dtype=dtype),
        rollout=torch.zeros(1, dtype=torch.int64),
        num_rollouts=1,
        behavior_logprobs=torch.tensor([behavior], dtype=dtype),
    )
    return out, known


def mean_of(metrics, name):
    total, count = metrics[name]
    return (total / count).item()


@pytest.mark.parametrize(
    ("name", "loss", "aggregation"),
    [
        ("ppo token_mean", PPO, token_mean),
        ("ppo sequence_mean", PPO, sequence_mean),
        ("sft token_mean", SFT, token_mean),
        ("sft sequence_mean", SFT, sequence_mean),
        ("gspo", SequenceClippedSurrogateLoss(), sequence_mean),
        ("gspo wide", SequenceClippedSurrogateLoss(0.2, 0.28), sequence_mean),
        ("cispo narrow", CISPOLoss(0.8, 1.28), token_mean),
        ("cispo high only", CISPOLoss(0.0, 1.272), token_mean),
        ("cispo token_mean", CISPOLoss(), token_mean),
        ("cispo sequence_mean", CISPOLoss(), sequence_mean),
        ("cispo prompt_mean", CISPOLoss(), prompt_mean),
        ("cispo constant_length", CISPOLoss(), ConstantLength(5)),
    ],
)
def test_loss_and_gradient_equal_the_published_ones(name, loss, aggregation):
    known = golden.batch(aggregation)
    if loss is SFT:
        known = replace(known, weight=torch.ones_like(known.weight))
    value, grad = golden.value_and_grad(loss, known)
    expected = golden.DATA["losses"][name]
    # Eight published decimals, times float32 scales.
    assert value == pytest.approx(expected["loss"], abs=1e-8, rel=1e-7)
    torch.testing.assert_close(grad.tolist(), expected["grad"], atol=1e-8, rtol=1e-7)


@pytest.mark.parametrize("loss", [*WITHOUT_ROWS, GSPO], ids=repr)
@given(cut=st.lists(st.booleans(), min_size=14, max_size=14))
def test_micro_batches_add_up_to_the_update(loss, cut):
    known, whole = golden.batch(sequence_mean if loss is GSPO else token_mean), golden.forward()
    # A loss that looks at whole rows needs these in one micro-batch.
    chosen = torch.tensor(cut)[known.rollout] if loss is GSPO else torch.tensor(cut)
    value, grad = golden.value_and_grad(loss, known, whole)
    split = torch.zeros_like(grad)
    total = 0.0
    for index in (chosen.nonzero().flatten(), (~chosen).nonzero().flatten()):
        lp = golden.tokens("new_logp")[index].requires_grad_()
        out = TokenLogprobs(logprobs=lp, entropy=torch.zeros_like(lp))
        part, part_grad = golden.value_and_grad(loss, golden.sub_batch(known, index), out)
        total += part
        split[index] = part_grad
    assert total == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(split, grad, atol=1e-15, rtol=0)


@pytest.mark.parametrize("loss", [*ALL, EntropyBonus(), CompositeLoss((PPO, EntropyBonus()))])
def test_an_empty_micro_batch_gives_zero_and_can_be_differentiated(loss):
    none = torch.zeros(0)
    out = TokenLogprobs(logprobs=none.clone().requires_grad_(), entropy=none.requires_grad_())
    row = torch.zeros(0, dtype=torch.int64)
    known = LossBatch(weight=none, scale=none, rollout=row, num_rollouts=1, behavior_logprobs=none)
    value, metrics = loss(out, known)
    value.backward()
    assert value.item() == 0.0
    assert all(count.item() == 0 for _, count in metrics.values())


@pytest.mark.parametrize(
    ("weight", "ratio", "per_token", "slope", "clipped"),
    [
        # -A r inside [0.8, 1.28], gradient of -A r with respect to lp is -A r.
        (1.0, 1.1, -1.1, -1.1, {}),
        (-1.0, 0.9, 0.9, 0.9, {}),
        # outside on the side that the weight pushes to: constant, no gradient.
        (1.0, 1.5, -1.28, 0.0, {"clip_high": 1.0}),
        (-1.0, 0.5, 0.8, 0.0, {"clip_low": 1.0}),
        # outside on the other side: pulled back.
        (1.0, 0.5, -0.5, -0.5, {}),
        (-1.0, 1.5, 1.5, 1.5, {}),
        # run away with a bad weight: bounded by -A c = 3, no gradient.
        (-1.0, 5.0, 3.0, 0.0, {"dual_clip": 1.0}),
        (2.0, 5.0, -2.56, 0.0, {"clip_high": 1.0}),
    ],
)
def test_clipped_surrogate_by_hand(weight, ratio, per_token, slope, clipped):
    out, known = one_token(math.log(ratio) - 1.0, -1.0, weight)
    value, metrics = PPO(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    assert value.item() == pytest.approx(per_token)
    assert grad.item() == pytest.approx(slope)
    expected = {"clip_low": 0.0, "clip_high": 0.0, "dual_clip": 0.0} | clipped
    assert {name: mean_of(metrics, name) for name in metrics} == expected


@pytest.mark.parametrize(("ratio", "factor", "truncated"), [(0.5, 0.5, 0.0), (4.0, 2.0, 1.0)])
def test_reinforce_weighs_by_the_truncated_ratio_and_holds_it_constant(ratio, factor, truncated):
    # -A min(r, 2) lp with A = 3, lp = -1: gradient -3 min(r, 2).
    out, known = one_token(-1.0, -1.0 - math.log(ratio), 3.0)
    value, metrics = ReinforceLoss(max_ratio=2.0)(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    assert value.item() == pytest.approx(3 * factor)
    assert grad.item() == pytest.approx(-3 * factor)
    assert mean_of(metrics, "truncated") == truncated


def test_reinforce_by_sequence_weighs_each_rollout_by_its_product():
    # Ratios 2 and 3 make 6, truncated to 5; 1/2 alone stays.
    new = torch.tensor([math.log(r) - 4 for r in (2, 3, 0.5)], requires_grad=True)
    known = LossBatch(
        weight=torch.tensor([1.0, 2.0, 3.0]),
        scale=torch.ones(3),
        rollout=torch.tensor([0, 0, 1]),
        num_rollouts=2,
        behavior_logprobs=torch.full((3,), -4.0),
    )
    value, metrics = SequenceReinforceLoss()(TokenLogprobs(new, torch.zeros(3)), known)
    assert torch.autograd.grad(value, new)[0].tolist() == pytest.approx([-5.0, -10.0, -1.5])
    assert mean_of(metrics, "truncated") == pytest.approx(2 / 3)


@pytest.mark.parametrize("loss", [GSPO, SequenceReinforceLoss()], ids=repr)
def test_a_loss_of_whole_rollouts_refuses_parts(loss):
    out, known = one_token()
    with pytest.raises(LossError, match="whole rollouts"):
        loss(out, replace(known, whole=False))


@pytest.mark.parametrize(("behavior", "weight"), [(-1e4, 1.0), (-1e4, -1.0), (-math.inf, 1.0)])
@pytest.mark.parametrize("loss", OF_RATIOS, ids=repr)
def test_a_runaway_ratio_gives_finite_gradients(loss, behavior, weight):
    out, known = one_token(-0.1, behavior, weight)
    value, _ = loss(out, known)
    (grad,) = torch.autograd.grad(value, out.logprobs)
    assert value.isfinite()
    assert grad.isfinite().all()


@pytest.mark.parametrize("loss", OF_RATIOS, ids=repr)
def test_a_ratio_without_the_samplers_logprobs_is_refused(loss):
    out, known = one_token()
    with pytest.raises(MissingLogprobs, match="client that returns them"):
        loss(out, replace(known, behavior_logprobs=None))


def test_reinforce_and_cross_entropy_do_not_need_the_samplers_logprobs():
    out, known = one_token(-1.0, weight=2.0)
    known = replace(known, behavior_logprobs=None)
    assert ReinforceLoss()(out, known)[0].item() == 2.0
    value, metrics = SFT(out, known)
    assert value.item() == 2.0
    assert mean_of(metrics, "nll") == 1.0


def test_a_turn_of_weight_0_is_in_no_mean_of_imitation():
    # Of three turns, of 2, 1 and 3 tokens, the second is left out.
    rows = [
        SAWItem(input_ids=np.arange(4), action_mask=np.arange(4) >= 4 - n, weight=np.full(4, w))
        for n, w in ((2, 1.0), (1, 0.0), (3, 1.0))
    ]
    scales = sft().aggregation(rows)
    assert [scale.tolist() for scale in scales] == [pytest.approx([1 / 5] * n) for n in (2, 1, 3)]
    out, known = one_token(-3.0, weight=0.0)
    value, metrics = SFT(out, known)
    assert value.item() == 0.0
    assert [part.item() for part in metrics["nll"]] == [0.0, 0.0]


def test_entropy_bonus_pushes_entropy_up():
    out, known = one_token(entropy=0.5)
    value, _ = EntropyBonus(0.1)(out, known)
    (grad,) = torch.autograd.grad(value, out.entropy)
    assert (value.item(), grad.item()) == pytest.approx((-0.05, -0.1))


def test_a_falling_entropy_coefficient_is_a_line_over_versions():
    # 0.1 + (0.02 - 0.1) * v / 4, and 0.02 from version 4 on.
    bonus = EntropyBonus(0.1, final=0.02, updates=4)
    out, known = one_token(entropy=2.0)
    losses = [bonus(out, replace(known, version=v))[0].item() for v in (0, 1, 2, 4, 9)]
    assert losses == pytest.approx([-0.2, -0.16, -0.12, -0.04, -0.04])
    value, _ = EntropyBonus(0.1, final=0.0, updates=3)(out, replace(known, version=3))
    assert (value.item(), torch.autograd.grad(value, out.entropy)[0].item()) == (0.0, 0.0)


def test_composite_weighs_values_and_gradients_but_not_metrics():
    # REINFORCE and SFT: -2 * lp = 2, gradient -2. 3 * 2 - 0.5 * 2 = 5, 3 * -2 + 0.5 * 2 = -5.
    # The bonus: -0.25 * entropy = -0.5, gradient -0.25; weight 4 makes -2 and -1.
    out, known = one_token(-1.0, weight=2.0, entropy=2.0)
    terms = (ReinforceLoss(), SFT, EntropyBonus(0.25))
    value, metrics = CompositeLoss(terms, weights=(3.0, -0.5, 4.0))(out, known)
    by_logprob, by_entropy = torch.autograd.grad(value, (out.logprobs, out.entropy))
    assert (value.item(), by_logprob.item(), by_entropy.item()) == (5.0 - 2.0, -5.0, -1.0)
    assert [part.item() for part in metrics["nll"]] == [1.0, 1.0]


def test_metrics_of_one_name_get_the_names_of_their_terms():
    # Ratio exp(-1) = 0.37: below the first range and within [0, 5] of the second.
    out, known = one_token(-2.0, behavior=-1.0, weight=-1.0)
    terms = (TokenClippedSurrogateLoss(), CISPOLoss(), SFT)
    _, metrics = CompositeLoss(terms, names=("policy", "soft", "demos"))(out, known)
    assert {name: mean_of(metrics, name) for name in metrics} == {
        "policy/clip_low": 1.0,
        "policy/clip_high": 0.0,
        "soft/clip_low": 0.0,
        "soft/clip_high": 0.0,
        "nll": 2.0,
    }


def test_names_are_made_from_classes_and_functions():
    def own(out, batch):
        return SFT(out, batch)

    _, metrics = CompositeLoss((SFT, own, SFT))(*one_token())
    name = "masked_causal_lm_cross_entropy"
    assert set(metrics) == {f"{name}/nll", "own/nll", f"{name}_2/nll"}
    _, metrics = CompositeLoss((PPO, CISPOLoss(0.5, 2.0)))(*one_token())
    assert {"token_clipped_surrogate/clip_low", "cispo/clip_low", "dual_clip"} <= set(metrics)


def test_a_name_that_belongs_to_another_metric_is_refused():
    def odd(out, batch):
        return SFT(out, batch)[0], {"a/nll": (torch.ones(()), torch.ones(()))}

    with pytest.raises(LossError, match="'a/nll'"):
        CompositeLoss((odd, SFT, SFT), names=("odd", "a", "b"))(*one_token())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReinforceLoss(max_ratio=0.0),
        lambda: ReinforceLoss(max_ratio=math.nan),
        lambda: TokenClippedSurrogateLoss(clip_low=0.0),
        lambda: TokenClippedSurrogateLoss(clip_low=1.5),
        lambda: TokenClippedSurrogateLoss(clip_high=-0.2),
        lambda: TokenClippedSurrogateLoss(dual_clip=1.1),
        lambda: SequenceClippedSurrogateLoss(clip_low=2.0),
        lambda: CISPOLoss(0.8, 0.28),
        lambda: SequenceReinforceLoss(math.inf),
        lambda: EntropyBonus(-0.01),
        lambda: EntropyBonus(0.1, final=0.0),
        lambda: EntropyBonus(0.1, updates=10),
        lambda: EntropyBonus(0.1, final=0.2, updates=10),
        lambda: EntropyBonus(0.1, final=-0.1, updates=10),
        lambda: EntropyBonus(0.1, final=0.0, updates=0),
        lambda: CompositeLoss(()),
        lambda: CompositeLoss((PPO, SFT), weights=(1.0,)),
        lambda: CompositeLoss((PPO, SFT), weights=(1.0, math.nan)),
        lambda: CompositeLoss((PPO, SFT), names=("a", "a")),
        lambda: CompositeLoss((PPO, SFT), names=("a", "")),
        lambda: CompositeLoss((PPO, SFT), names=("a",)),
    ],
)
def test_impossible_values_are_refused_at_construction(make):
    with pytest.raises(ConfigError):
        make()


def test_tensors_that_are_not_one_number_per_token_are_refused():
    out, known = one_token()
    with pytest.raises(LossError, match=r"scale is \[1, 1\]"):
        replace(known, scale=torch.ones(1, 1))
    with pytest.raises(LossError, match=r"'?forward pass is \[1, 1\]"):
        SFT(replace(out, logprobs=out.logprobs[:, None]), known)


def test_a_missing_attachment_is_named_with_what_is_there():
    _, known = one_token()
    known = replace(known, attachments={"teacher": torch.zeros(1)})
    with pytest.raises(MissingAttachment, match=r"'ref_logprobs'.*teacher"):
        attachment(known, "ref_logprobs")
