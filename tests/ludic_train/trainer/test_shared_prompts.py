"""Items of one prompt in one row: as they are alone, and each token computed once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from two_ranks.learning import (
    gradient_of,
    random_rows,
    relative_error,
    tiny_model,
    with_few_prompts,
)
from two_ranks.learning import settings as trainer_settings

from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.presets import grpo, gspo, sft
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes, plan_update
from ludic_train.trainer.packing import families, mask_of_positions
from ludic_train.trainer.step import forward
from ludic_train.types import SAWItem


def item(prompt, reply, rollout=None):
    ids = np.array([*prompt, *reply], np.int32)
    mask = np.arange(len(ids)) >= len(prompt)
    return SAWItem(input_ids=ids, action_mask=mask, weight=mask.astype(np.float32), rollout=rollout)


PROMPT = [5, 6, 7]
THREE = [item(PROMPT, [10, 11]), item(PROMPT, [20]), item(PROMPT, [30, 31, 32])]


def test_a_prompt_stands_once_before_the_rests_of_its_items():
    ((micro,),) = plan_update([*THREE, item([5, 6], [40])], token_budget=64, share_prompts=True)
    assert micro.input_ids.tolist() == [
        [5, 6, 7, 7, 10, 11, 7, 20, 7, 30, 31, 32, 5, 6, 40],
    ]
    assert micro.position_ids.tolist() == [[0, 1, 2, 2, 3, 4, 2, 3, 2, 3, 4, 5, 0, 1, 2]]
    assert micro.column.tolist() == [4, 5, 7, 9, 10, 11, 14]
    assert micro.item.tolist() == [0, 0, 1, 2, 2, 2, 3]
    assert micro.shares_prompts
    ((sent,),) = (plan_from_bytes(plan_to_bytes([micro])),)
    assert sent.shares_prompts
    assert not plan_update(THREE, token_budget=64)[0][0].shares_prompts


def test_a_token_attends_to_its_own_piece_and_to_the_prompt_before_the_copy():
    positions = torch.tensor([[0, 1, 2, 2, 3, 2, 3, 4, 0, 1, 1, 0]])
    seen = [np.flatnonzero(row).tolist() for row in mask_of_positions(positions)[0, 0].numpy()]
    assert seen == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 3],
        [0, 1, 3, 4],
        [0, 1, 5],
        [0, 1, 5, 6],
        [0, 1, 5, 6, 7],
        [8],
        [8, 9],
        [8, 10],
        [11],
    ]


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(st.integers(2, 24), st.integers(0, 1000), st.integers(1, 3), st.integers(30, 300))
def test_logprobs_and_gradients_are_those_of_the_items_alone(count, seed, prompts, budget):
    items = with_few_prompts(random_rows(count, seed), prompts, seed)
    ((alone,),) = plan_update(items, token_budget=10_000, packing=False)
    (shared,) = plan_update(items, token_budget=budget, share_prompts=True)
    model = tiny_model()
    with torch.no_grad():
        expected = forward(model, alone)
        found = [forward(model, micro) for micro in shared]
    in_order = np.argsort(alone.item, kind="stable")
    order = np.argsort(np.concatenate([micro.item for micro in shared]), kind="stable")
    for name in ("logprobs", "entropy"):
        values = torch.cat([getattr(out, name) for out in found])[order]
        torch.testing.assert_close(values, getattr(expected, name)[in_order], rtol=0, atol=1e-5)
    whole, _ = gradient_of(items, trainer_settings(packing=False))
    cut, metrics = gradient_of(items, trainer_settings(budget))
    assert relative_error(cut, whole) < 1e-6 * 5
    tokens = sum(len(item.input_ids) for item in items if item.action_mask.any())
    assert metrics["tokens/trained"].value >= tokens


def test_a_group_of_eight_computes_less_than_half():
    group = [item(range(50, 112), range(3, 3 + 30 + k)) for k in range(8)]
    ((micro,),) = plan_update(group, token_budget=4096, share_prompts=True)
    # 62 of the prompt, and per item its copy of the last one and the reply.
    assert micro.input_ids.shape == (1, 62 + sum(31 + k for k in range(8)))
    assert micro.input_ids.size < 0.5 * sum(len(row.input_ids) for row in group)


def test_no_family_is_wider_than_the_budget():
    lengths = [len(row.input_ids) for row in THREE]
    for budget in range(6, 13):
        found = families(THREE, [(0,), (1,), (2,)], [-1] * 3, token_budget=budget)
        assert all(family.width(lengths) <= budget for family in found)
        assert sorted(i for family in found for i in family.items) == [0, 1, 2]


def played(rollout, *replies):
    """Rows of a rollout whose turns all begin with the prompt."""
    return [item(PROMPT, reply, rollout=rollout) for reply in replies]


def test_equal_rows_are_computed_once_and_read_by_each():
    items = [*played("a", [1, 2], [3]), *played("b", [1, 2], [4])]
    ((micro,),) = plan_update(items, token_budget=64)
    assert micro.input_ids.tolist() == [[5, 6, 7, 1, 2], [5, 6, 7, 3, 0], [5, 6, 7, 4, 0]]
    assert micro.item.tolist() == [0, 0, 2, 2, 1, 3]
    assert micro.row.tolist() == [0, 0, 0, 0, 1, 2]
    assert micro.column.tolist() == [3, 4, 3, 4, 3, 3]
    assert micro.whole


def test_rows_of_several_rollouts_share_a_prompt():
    items = [*played("a", [1, 2], [3]), *played("b", [1, 2], [4])]
    ((micro,),) = plan_update(items, token_budget=64, share_prompts=True)
    assert micro.input_ids.tolist() == [[5, 6, 7, 7, 1, 2, 7, 3, 7, 4]]


def test_equal_tokens_of_which_other_ones_were_sampled_are_equal_rows():
    later = replace(item([5, 6, 7, 1], [2]), rollout="b")
    ((micro,),) = plan_update([item(PROMPT, [1, 2], "a"), later], token_budget=64)
    assert micro.input_ids.tolist() == [[5, 6, 7, 1, 2]]
    assert micro.column.tolist() == [3, 4, 4]


def test_sharing_tears_no_rollout_apart_that_fits_into_a_micro_batch():
    # Each rollout has 20 tokens; all of them begin with one row, and so would be in one chunk.
    rollouts = [played(str(k), [1, 2], [10 + k, k], [20 + k, k], [30 + k, k]) for k in range(8)]
    items = [row for rows in rollouts for row in rows]
    (micro_batches,) = plan_update(items, token_budget=40)
    assert all(micro.whole for micro in micro_batches)
    assert sum(micro.input_ids.size for micro in micro_batches) < 8 * 20
    assert sorted(i for m in micro_batches for i in {*m.item.tolist()}) == [*range(32)]


def test_rollouts_that_are_too_wide_together_share_nothing():
    # Rows of 5, 5, 5 and 9 tokens: 4 x 9 cells of one rollout fit, and 7 x 9 of two do not.
    rollouts = [played(str(k), [1, 2], [10 + k, k], [20 + k, k], range(k, k + 6)) for k in range(8)]
    items = [row for rows in rollouts for row in rows]
    (micro_batches,) = plan_update(items, token_budget=40, packing=False)
    assert [micro.input_ids.shape for micro in micro_batches] == [(4, 9)] * 8
    assert all(micro.whole for micro in micro_batches)


@pytest.mark.parametrize(
    "algo", [grpo(), gspo(), sft(), grpo(entropy=0.5)], ids=["grpo", "gspo", "sft", "entropy"]
)
@pytest.mark.parametrize("share_prompts", [False, True])
def test_the_gradient_does_not_depend_on_what_is_shared(algo, share_prompts):
    rows = random_rows(12, seed=4)
    again = [
        replace(row, rollout=f"again {row.rollout or i}", weight=-0.5 * row.weight)
        for i, row in enumerate(rows)
    ]
    options = {"packing": share_prompts, "share_prompts": share_prompts}
    algo = replace(algo, aggregation=token_mean)
    both, metrics = gradient_of([*rows, *again], trainer_settings(**options), algo)
    # Each as an update of its own, in which nothing is equal; both have as many tokens.
    (first, of_first), (second, of_second) = (
        gradient_of(part, trainer_settings(packing=False), algo) for part in (rows, again)
    )
    assert relative_error(both, (first + second) / 2) < 1e-6
    losses = of_first["loss"].value, of_second["loss"].value
    assert metrics["loss"].value == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert (metrics["rows"].value, metrics["rows/distinct"].value) == (24, 12)
    assert metrics["tokens/fill"].value > 1


def test_rows_with_experts_are_not_shared():
    experts = np.zeros((5, 2, 1), np.int16)
    rows = [replace(row, experts=experts) for row in [item(PROMPT, [1, 2]), item(PROMPT, [1, 2])]]
    options = {"token_budget": 64, "share_prompts": True, "router_replay": True, "packing": False}
    ((micro,),) = plan_update(rows, **options)
    assert micro.input_ids.shape == (2, 5)


def test_a_prompt_may_be_left_to_each_row():
    items = with_few_prompts(random_rows(12), 1)
    _, metrics = gradient_of(items, trainer_settings(share_prompts=False))
    assert metrics["tokens/fill"].value <= 1


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_no_token_is_lost_or_trained_twice(world_size):
    items = with_few_prompts(random_rows(30, seed=3, masked=0.3), 2)
    ranks = plan_update(items, token_budget=60, world_size=world_size, share_prompts=True)
    found = sorted(
        (int(i), int(micro.input_ids[r, c]))
        for own in ranks
        for micro in own
        for i, r, c in zip(micro.item, micro.row, micro.column, strict=True)
    )
    expected = sorted(
        (i, int(token)) for i, row in enumerate(items) for token in row.input_ids[row.action_mask]
    )
    assert found == expected
