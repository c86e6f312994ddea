"""Other policies in an update: a reference, and the one that began the batch."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from two_ranks.learning import Fixed, random_rows, relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.kl import TokenKLLoss
from ludic_train.algorithms.losses import CompositeLoss, TokenClippedSurrogateLoss
from ludic_train.algorithms.off_policy import Corrected, TokenTruncation
from ludic_train.algorithms.presets import grpo
from ludic_train.trainer.config import Execution
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.prepare import attach_streams, minibatches
from ludic_train.trainer.reference import start_of
from ludic_train.trainer.step import forward
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import PROXIMAL, REFERENCE

KL = replace(
    grpo(),
    loss=CompositeLoss((TokenClippedSurrogateLoss(), TokenKLLoss(0.1))),
    attach=frozenset({REFERENCE}),
)
DECOUPLED = replace(
    grpo(),
    loss=Corrected(TokenClippedSurrogateLoss(0.2, 0.2), TokenTruncation(2.0)),
    attach=frozenset({PROXIMAL}),
)


def lora_model():
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(tiny_model(), config)


def logprobs(model, items):
    """Of the action tokens of each row, by itself."""
    found = []
    for item in items:
        ((alone,),) = plan_update([item], token_budget=100)
        found.append(forward(model, alone).logprobs.detach())
    return found


def assert_attached(items, name, expected):
    for item, values in zip(items, expected, strict=True):
        found = torch.from_numpy(item.attachments[name][item.action_mask])
        torch.testing.assert_close(found, values, atol=1e-5, rtol=0)
        assert not item.attachments[name][~item.action_mask].any()


async def test_the_adapter_of_the_start_is_the_reference_however_far_it_has_learned():
    items, model = random_rows(6), lora_model()
    start = start_of(model)
    # A new adapter changes nothing yet.
    base = logprobs(tiny_model(), items)
    trainer = Trainer(model, KL, Fixed(items), cfg=replace(settings(), lr=1e-2))
    await trainer.train(5)
    found = attach_streams(items, model, start, KL, settings(), execution=Execution())
    assert_attached(found, REFERENCE, base)
    moved = torch.cat(logprobs(model, items)) - torch.cat(base)
    assert float(moved.abs().max()) > 1e-2


async def test_a_frozen_copy_stays_what_it_was_and_holds_the_policy_back():
    items, distances = random_rows(6), {}
    for coefficient in (0.001, 10.0):
        model = tiny_model()
        frozen = copy.deepcopy(model)
        terms = (TokenClippedSurrogateLoss(), TokenKLLoss(coefficient))
        algo = replace(KL, loss=CompositeLoss(terms))
        cfg = replace(settings(), lr=3e-3)
        trainer = Trainer(model, algo, Fixed(items), cfg=cfg, reference=frozen)
        seen = []
        await trainer.train(10, lambda v, m, seen=seen: seen.append(m["reference_kl"].value))
        assert seen[0] == pytest.approx(0.0, abs=1e-6)
        distances[coefficient] = seen[-1]
        for param, first in zip(frozen.parameters(), tiny_model().parameters(), strict=True):
            assert torch.equal(param, first)
            assert param.grad is None
    assert distances[10.0] < 0.2 * distances[0.001]


def test_a_full_model_without_a_reference_is_told_what_to_give():
    with pytest.raises(ConfigError, match="grpo compares"):
        attach_streams(random_rows(2), tiny_model(), None, KL, settings(), execution=Execution())


async def test_every_update_of_a_batch_is_clipped_to_the_policy_that_began_it():
    # The same by hand: log-probs of the first params are kept, and each of the four updates (two
    # passes over all rows, cut in two) takes its rows in one padded batch.
    items = random_rows(8)
    cfg = replace(settings(), lr=2e-3, epochs=2, minibatches=2)
    model = tiny_model()
    known = attach_streams(items, model, None, DECOUPLED, cfg, execution=Execution())
    parts = list(minibatches(known, cfg, DECOUPLED, version=0))
    await Trainer(model, DECOUPLED, Fixed(items), cfg=cfg).train(4)

    by_hand = tiny_model()
    assert_attached(
        [r for p in parts for r in p],
        PROXIMAL,
        [lp for p in parts for lp in logprobs(tiny_model(), p)],
    )
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0)
    for rows in parts:
        optimizer.zero_grad()
        decoupled_loss(by_hand, rows).backward()
        optimizer.step()
    for found, expected in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert relative_error(found, expected.detach()) < 1e-4


def decoupled_loss(model, rows):
    """Mean over rows of the mean over tokens of min(prox / behavior, 2) * clipped surrogate."""
    total = 0.0
    for row in rows:
        at = np.flatnonzero(row.action_mask)
        ids = torch.from_numpy(row.input_ids.astype(np.int64))
        everything = model(ids[None]).logits[0].log_softmax(-1)
        new = everything[at - 1, ids[at]]
        prox, old, weight = (
            torch.from_numpy(stream[at])
            for stream in (row.attachments[PROXIMAL], row.behavior_logprobs, row.weight)
        )
        ratio = (new - prox).exp()
        surrogate = torch.maximum(-weight * ratio, -weight * ratio.clamp(0.8, 1.2))
        total = total + ((prox - old).exp().clamp(max=2.0) * surrogate).mean()
    return total / len(rows)


def stream(item, values):
    whole = np.zeros(len(item.input_ids), np.float32)
    whole[item.action_mask] = values.numpy()
    return whole
