from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_train.errors import EmptyBatch, OverlongRow
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes, plan_update
from ludic_train.types import SAWItem


def item(ids, actions, *, weight=1.0, logprobs=True, temperature=1.0):
    mask = np.zeros(len(ids), bool)
    mask[list(actions)] = True
    weights = np.where(mask, np.float32(weight), np.float32(0))
    return SAWItem(
        input_ids=np.asarray(ids, np.int32),
        action_mask=mask,
        weight=weights,
        behavior_logprobs=np.where(mask, np.float32(-1), np.float32(0)) if logprobs else None,
        versions=np.where(mask, 3, -1).astype(np.int32) if logprobs else None,
        temperature=temperature,
    )


def test_rows_are_padded_on_the_right_and_their_action_tokens_found():
    long, short = item([1, 2, 3, 4], [2, 3], weight=2.0), item([5, 6], [1], temperature=0.5)
    ((micro,),) = plan_update([short, long], token_budget=8, packing=False)
    assert micro.input_ids.tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    assert micro.row.tolist() == [0, 0, 1]
    assert micro.column.tolist() == [2, 3, 1]
    assert micro.weight.tolist() == [2.0, 2.0, 1.0]
    assert micro.temperature.tolist() == [1.0, 1.0, 0.5]
    assert micro.versions.tolist() == [3, 3, 3]
    np.testing.assert_allclose(micro.scale, [1 / 3] * 3)


def test_a_row_beyond_the_budget_is_refused():
    with pytest.raises(OverlongRow, match="3 tokens, more than the budget of 2"):
        plan_update([item([1, 2, 3], [1])], token_budget=2)


def test_items_without_action_tokens_are_left_out():
    ((micro,),) = plan_update([item([1, 2], []), item([3, 4], [1])], token_budget=9)
    assert micro.input_ids.tolist() == [[3, 4]]
    with pytest.raises(EmptyBatch, match="of 2 rows, none"):
        plan_update([item([1, 2], []), item([3], [])], token_budget=9)


def test_packed_items_start_counting_positions_again():
    # Alone, the 8 + 4 x 2 tokens would fill half of 5 rows of 8.
    rows = [item([9] * 8, [1]), *(item([i, i], [1]) for i in range(1, 5))]
    ((micro,),) = plan_update(rows, token_budget=64)
    assert micro.input_ids.tolist() == [[9] * 8 + [1, 1, 2, 2, 3, 3, 4, 4]]
    assert micro.position_ids.tolist() == [[*range(8), 0, 1, 0, 1, 0, 1, 0, 1]]
    assert (micro.row.tolist(), micro.column.tolist()) == ([0] * 5, [1, 9, 11, 13, 15])
    assert (micro.rollout.tolist(), micro.num_rollouts) == ([0, 1, 2, 3, 4], 5)


def test_ranks_get_nearly_equal_work():
    rows = [item([1] * n, [1]) for n in range(2, 60)]
    for ranks in (plan_update(rows, token_budget=300, world_size=w) for w in (2, 3)):
        costs = [sum(micro.input_ids.size for micro in micros) for micros in ranks]
        assert max(costs) < 1.25 * min(costs)


def test_one_row_without_logprobs_hides_those_of_no_other():
    rows = [item([1, 2], [1]), item([1, 2], [1], logprobs=False), item([1, 2], [1])]
    (micros,) = plan_update(rows, token_budget=9)
    known, unknown = sorted(micros, key=lambda micro: micro.behavior_logprobs is None)
    assert known.item.tolist() == [0, 2]
    assert known.behavior_logprobs.shape == known.versions.shape == (2,)
    assert unknown.item.tolist() == [1]
    assert unknown.behavior_logprobs is unknown.versions is None
    # Shares are of the update, however its rows were cut.
    assert np.concatenate([known.scale, unknown.scale]).tolist() == pytest.approx([1 / 3] * 3)


def test_ranks_get_equally_many_micro_batches_and_extra_ones_hold_no_action_token():
    rows = [item([i, 1], [1]) for i in range(3)]
    ranks = plan_update(rows, token_budget=2, world_size=2)
    assert [len(micros) for micros in ranks] == [2, 2]
    assert [[len(micro.scale) for micro in micros] for micros in ranks] == [[1, 1], [1, 0]]
    ranks = plan_update(rows[:1], token_budget=2, world_size=3)
    assert [[len(micro.row) for micro in micros] for micros in ranks] == [[1], [0], [0]]
    assert ranks[2][0].behavior_logprobs.shape == (0,)


@pytest.mark.parametrize("logprobs", [True, False])
def test_plans_come_back_exactly_from_the_wire(logprobs):
    attached = {"values": np.array([0, 0.5, 1], np.float32)}
    rows = [
        replace(item([i, 2, 3], [1, 2], logprobs=logprobs), attachments=attached) for i in range(4)
    ]
    (plan,) = plan_update(rows, token_budget=6)
    back = plan_from_bytes(plan_to_bytes(plan))
    assert len(back) == len(plan) == 2
    for one, other in zip(plan, back, strict=True):
        for name in type(one).__dataclass_fields__:
            np.testing.assert_equal(getattr(other, name), getattr(one, name))


lengths = st.lists(st.integers(2, 12), min_size=1, max_size=20)


@given(lengths, st.integers(12, 60), st.integers(1, 3), st.booleans())
def test_no_row_is_lost_or_trained_twice(sizes, budget, world_size, packing):
    rows = [item([i + 1] * n, range(1, n)) for i, n in enumerate(sizes)]
    ranks = plan_update(rows, token_budget=budget, world_size=world_size, packing=packing)
    assert len({len(micros) for micros in ranks}) == 1
    seen: Counter[int] = Counter()
    total = 0.0
    for micro in (m for micros in ranks for m in micros):
        assert micro.input_ids.size <= budget
        seen.update(micro.input_ids[micro.row, micro.column].tolist())
        total += float(micro.scale.sum())
    assert seen == Counter({i + 1: n - 1 for i, n in enumerate(sizes)})
    assert total == pytest.approx(1.0, rel=1e-5)
