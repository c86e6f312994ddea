"""Training on samples of top_p, top_k and min_p is on-policy: their masks are replayed."""

import numpy as np
import pytest
import torch
from trajectories import rollout

from ludic_gym.sampling import packed_masks, unpacked_masks
from ludic_gym.types import Completion, Sampling
from ludic_train.algorithms.kl import TokenKLLoss
from ludic_train.engine.batch import Engine, Request
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes, plan_update
from ludic_train.trainer.prepare import scored
from ludic_train.trainer.step import forward, loss_batch
from ludic_train.types import REFERENCE, SAWItem

CUTS = {
    "top_p": {"top_p": 0.8},
    "top_k": {"top_k": 5},
    "min_p": {"min_p": 0.2},
    "all at 0.7": {"top_p": 0.8, "top_k": 20, "min_p": 0.05, "temperature": 0.7},
}
TOKENS = 24


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(["1 2 X\n4 O 6"])


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_tiny_model(tokenizer).eval()


def sampled(model, tokenizer, **sampling):
    """A completion of each of 40 prompts, by the local engine."""
    engine, ended = Engine(model, tokenizer, max_batch_size=16), []
    for seed in range(40):
        known = Sampling(seed=seed, max_tokens=TOKENS, **sampling)
        engine.add(
            Request(prompt_ids=(5, 9 + seed % 7, 3 + seed), sampling=known, policy_version=0)
        )
    while not engine.is_idle:
        ended += [completion for _, completion in engine.advance()]
    return ended


def items_of(completions):
    return [row for each in completions for row in trajectory_from(rollout((each,))).rows]


def ratios(model, items):
    """Importance ratios pi / sampler of all tokens, as a loss sees them."""
    found = []
    for micro_batch in plan_update(items, token_budget=300)[0]:
        # As a rank gets it.
        (received,) = plan_from_bytes(plan_to_bytes([micro_batch]))
        out, batch = forward(model, received), loss_batch(received, 0)
        found.append((out.logprobs.detach() - batch.behavior_logprobs).exp())
    return torch.cat(found)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_at_lag_0_every_ratio_is_1(model, tokenizer, cut):
    items = items_of(sampled(model, tokenizer, **cut))
    found = ratios(model, items)
    assert len(found) > 500
    # float32: the largest is rounding, and as large without cuts. `--exact` has none of it.
    assert (found - 1).abs().mean() < 1e-6
    assert (found - 1).abs().max() < 5e-6


def test_without_replay_the_ratio_is_the_mass_of_the_nucleus(model, tokenizer):
    items = items_of(sampled(model, tokenizer, top_p=0.8))
    whole = [SAWItem(**{**fields_of(item), "sampling_mask": None}) for item in items]
    found = ratios(model, whole)
    # Each nucleus holds 0.8 or a little more.
    assert 0.8 - 1e-6 < found.min() < found.mean() < 0.83


def fields_of(item):
    return {name: getattr(item, name) for name in SAWItem.__dataclass_fields__}


def test_the_engine_reports_the_set_that_each_token_was_drawn_from(model, tokenizer):
    for completion in sampled(model, tokenizer, **CUTS["all at 0.7"])[:8]:
        prompt, ids = completion.prompt_ids, completion.completion_ids
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        sizes, kept = unpacked_masks(completion.sampling_mask, np.array(ids))
        for each, row in zip(np.split(kept, sizes.cumsum()[:-1]), logits / 0.7, strict=True):
            assert set(each.tolist()) == by_hand(row, top_p=0.8, top_k=20, min_p=0.05)


def by_hand(logits, *, top_p, top_k, min_p):
    """The tokens that are left, one after the other from the likeliest."""
    chances = sorted(
        ((p, i) for i, p in enumerate(logits.double().softmax(-1).tolist())), reverse=True
    )
    left = [(p, i) for p, i in chances if p >= min_p * chances[0][0]][:top_k]
    total, mass, kept = sum(p for p, _ in left), 0.0, set()
    for p, i in left:
        if mass < top_p * total:
            kept.add(i)
        mass += p
    return kept


PROMPT = [5, 9, 3]
MASK = [4, 11, 17, 60, 61]
REWARDS = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.25])


def one_token(token, weight):
    """A row of the prompt and one token that was drawn from MASK."""
    ids = np.array([*PROMPT, token], np.int32)
    at = np.arange(4) == 3
    return SAWItem(
        input_ids=ids,
        action_mask=at,
        weight=np.where(at, weight, 0).astype(np.float32),
        sampling_mask=packed_masks([MASK], [token]),
    )


def distribution(model):
    """Probabilities of the tokens of MASK after PROMPT, renormalised, from the whole logits."""
    return model(torch.tensor([PROMPT])).logits[0, -1][MASK].softmax(-1)


def expected_gradient(model, weigh):
    """Sum over all tokens y of MASK of p(y) w(y) grad log p(y), by the trainer's forward pass."""
    chances = distribution(model).detach()
    items = [
        one_token(token, float(p * weigh(k)))
        for k, (token, p) in enumerate(zip(MASK, chances, strict=True))
    ]
    ((micro_batch,),) = plan_update(items, token_budget=10_000)
    out, batch = forward(model, micro_batch), loss_batch(micro_batch, 0)
    return torch.autograd.grad((batch.weight * out.logprobs).sum(), list(model.parameters()))


def test_the_expected_policy_gradient_is_that_of_the_expected_reward(model):
    found = expected_gradient(model, lambda k: REWARDS[k])
    reward = (distribution(model) * REWARDS).sum()
    expected = torch.autograd.grad(reward, list(model.parameters()))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_constant_reward_has_no_gradient(model):
    # Over the whole vocabulary it would: the mask's tokens would all become likelier.
    found = expected_gradient(model, lambda k: 1.0)
    assert max(float(gradient.abs().max()) for gradient in found) < 5e-6


def test_the_reference_is_renormalised_over_the_same_masks(model, tokenizer):
    items = items_of(sampled(model, tokenizer, **CUTS["all at 0.7"]))
    cfg = TrainerConfig()
    judged = scored(items, model, frozenset({REFERENCE}), cfg, execution=Execution())
    for item in judged:
        at = item.action_mask
        np.testing.assert_allclose(
            item.attachments[REFERENCE][at], item.behavior_logprobs[at], atol=5e-6
        )
    # So a policy that is its own reference has no divergence from it.
    ((micro_batch,),) = plan_update(judged, token_budget=10_000)
    out = forward(model, micro_batch)
    loss, _ = TokenKLLoss(1.0)(out, loss_batch(micro_batch, 0))
    assert float(loss.detach()) < 1e-9


def test_rows_of_a_truncated_rollout_are_scored_beyond_their_end(model, tokenizer):
    (completion,) = sampled(model, tokenizer, top_p=0.8)[:1]
    (item,) = trajectory_from(rollout((completion,), truncated=True)).rows
    assert item.truncated
    judged = scored([item], model, frozenset({REFERENCE}), TrainerConfig(), execution=Execution())
    assert np.isfinite(judged[0].attachments[REFERENCE]).all()


def test_turns_that_make_one_row_keep_their_masks_in_order(model, tokenizer):
    first, second = (
        Completion(
            text="",
            finish_reason="stop",
            sampling=Sampling(top_k=3),
            prompt_ids=prompt,
            completion_ids=(token,),
            logprobs=(-1.0,),
            sampling_mask=packed_masks([mask], [token]),
        )
        for prompt, token, mask in [((5, 6), 7, [7, 8]), ((5, 6, 7, 9), 4, [1, 4, 6])]
    )
    (row,) = trajectory_from(rollout((first,), (second,))).rows
    assert row.sampling_mask == packed_masks([[7, 8], [1, 4, 6]], [7, 4])
