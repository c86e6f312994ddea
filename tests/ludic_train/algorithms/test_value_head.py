from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import losses as golden
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.presets import ppo
from ludic_train.algorithms.value_head import (
    GAE,
    ValueLoss,
    add_value_head,
    generalized_advantages,
)
from ludic_train.errors import LossError, MissingAttachment
from ludic_train.trainer.config import Execution
from ludic_train.trainer.prepare import scored
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import RETURNS, REWARDS, VALUES, SAWItem, TokenLogprobs

GOLDEN_VALUES = [[0.2, 0.3, 0.4], [0.1, 0.1, 0.2, 0.1, 0.0], [0.3, 0.4], [0.2, 0.2, 0.3, 0.3]]
GOLDEN_RETURNS = [
    [0.9364999852180482, 0.9699999928474428, 1.0],
    [0.019012504300475075, 0.014750003457069394, 0.005000001192092901, 0.0, 0.0],
    [0.4949999988079071, 0.5],
    [0.2092625020354986, 0.2097500022649765, 0.2050000011920929, 0.2],
]
GOLDEN_WHITENED = [
    [1.9663216280842786, 1.7546061788888547, 1.5317478085182201],
    [
        -0.636306177789009,
        -0.6498766647708452,
        -0.9992867955154467,
        -0.6968361229034727,
        -0.37846698984323085,
    ],
    [0.24235281582898494, -0.060097856782989074],
    [-0.34897804241312674, -0.34742599215887127, -0.6809176624552047, -0.6968361229034726],
]


def row(rewards, values, mask):
    mask = np.array(mask, bool)
    streams = {REWARDS: rewards, VALUES: values}
    attached = {}
    for name, numbers in streams.items():
        attached[name] = np.zeros(len(mask), np.float32)
        attached[name][mask] = numbers
    return SAWItem(
        input_ids=np.arange(len(mask), dtype=np.int32),
        action_mask=mask,
        weight=np.zeros(len(mask), np.float32),
        attachments=attached,
    )


def golden_rows():
    for reward, values in zip(golden.INPUTS["reward"], GOLDEN_VALUES, strict=True):
        rewards = [0.0] * (len(values) - 1) + [reward]
        # An observation between tokens, and a prompt before them, must not matter.
        yield row(rewards, values, [0, 1, 0, *[1] * (len(values) - 1)])


def test_advantages_and_returns_equal_the_published_ones():
    items = list(golden_rows())
    for item, advantages, goals in zip(
        GAE(lam=0.95)(items), GOLDEN_WHITENED, GOLDEN_RETURNS, strict=True
    ):
        np.testing.assert_allclose(item.weight[item.action_mask], advantages, atol=1e-5)
        np.testing.assert_allclose(item.attachments[RETURNS][item.action_mask], goals, atol=1e-6)


def test_advantages_by_hand():
    # delta_1 = 1 - 0.5; delta_0 = 0 + 0.5 * 0.5 - 0.2 = 0.05; A_0 = 0.05 + 0.5 * 0.8 * 0.5
    found = generalized_advantages(np.array([0.0, 1.0]), np.array([0.2, 0.5]), 0.5, 0.8)
    np.testing.assert_allclose(found, [0.25, 0.5])


def test_rows_without_values_and_models_without_a_value_head_are_refused():
    item = row([1.0], [0.0], [0, 1])
    item = replace(item, attachments={REWARDS: item.attachments[REWARDS]})
    with pytest.raises(MissingAttachment, match="ppo"):
        GAE()([item])
    with pytest.raises(LossError, match="add_value_head"):
        ValueLoss()(golden.forward(), golden.batch(token_mean))


def test_the_value_loss_equals_the_published_one():
    old = torch.tensor([v for row in GOLDEN_VALUES for v in row], dtype=torch.float64)
    steps = torch.cat([torch.arange(len(row)) for row in GOLDEN_VALUES])
    goals = torch.tensor([v for row in GOLDEN_RETURNS for v in row], dtype=torch.float64)
    values = (old + 0.1 * (steps + 1)).requires_grad_()
    known = golden.batch(token_mean).with_attachment(VALUES, old).with_attachment(RETURNS, goals)
    out = TokenLogprobs(logprobs=values * 0, entropy=values * 0, values=values)
    loss, metrics = ValueLoss(coefficient=1.0)(out, known)
    assert loss.item() == pytest.approx(0.07552355755046825, abs=1e-6)
    assert metrics["value_error"][1] == 14


async def test_ppo_learns_what_a_state_is_worth():
    model = tiny_model()
    add_value_head(model)
    mask = np.array([False, False, True, True])
    items = [
        SAWItem(
            input_ids=np.array([first, 9, 5, 6], np.int32),
            action_mask=mask,
            weight=np.zeros(4, np.float32),
            behavior_logprobs=np.where(mask, -5.5, 0).astype(np.float32),
            attachments={REWARDS: np.array([0, 0, 0, reward], np.float32)},
        )
        for first, reward in ((20, 1.0), (30, -1.0))
    ]

    cfg = replace(settings(), lr=3e-3, epochs=2)
    errors = []
    trainer = Trainer(model, ppo(), Fixed(items), cfg=cfg)
    await trainer.train(60, lambda version, m: errors.append(m["value_error"].value))
    assert errors[0] == pytest.approx(1.0, abs=0.1)
    assert errors[-1] < 0.1


def test_every_row_gets_values_of_its_own():
    model = tiny_model()
    add_value_head(model)
    torch.nn.init.normal_(model.value_head.weight)
    items = random_rows(5)
    found = scored(items, model, frozenset({VALUES}), settings(60), execution=Execution())
    for item in found:
        hidden = model.model(torch.from_numpy(item.input_ids.astype(np.int64))[None])[0][0]
        expected = model.value_head(hidden)[:, 0].detach().numpy()
        at = np.flatnonzero(item.action_mask)
        np.testing.assert_allclose(item.attachments[VALUES][at], expected[at - 1], atol=1e-5)
