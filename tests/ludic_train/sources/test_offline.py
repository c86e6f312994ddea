from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from trajectories import call, rollout

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import by_sequence
from ludic_train.algorithms.filters import drop_truncated
from ludic_train.algorithms.presets import rloo, sft
from ludic_train.errors import CheckpointError, EmptyBatch
from ludic_train.rows import trajectory_from
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.types import SAWItem


def items(count):
    return [
        SAWItem(
            input_ids=np.array([i, i], np.int32),
            action_mask=np.array([False, True]),
            weight=np.ones(2, np.float32),
        )
        for i in range(count)
    ]


async def taken(source, batches):
    rows = [row for _ in range(batches) for row in (await source.next_batch(sft())).items]
    return [int(row.input_ids[0]) for row in rows]


async def test_every_pass_gives_each_row_once_in_another_order():
    order = await taken(OfflineBatchSource(items(6), batch_size=4), 3)
    first, second = order[:6], order[6:]
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second


async def test_a_seed_fixes_the_order():
    one = await taken(OfflineBatchSource(items(9), batch_size=3, seed=5), 4)
    same = await taken(OfflineBatchSource(items(9), batch_size=3, seed=5), 4)
    other = await taken(OfflineBatchSource(items(9), batch_size=3, seed=6), 4)
    assert one == same != other


async def test_a_source_goes_on_where_another_stopped():
    straight = await taken(OfflineBatchSource(items(7), batch_size=3), 6)
    first = OfflineBatchSource(items(7), batch_size=3)
    start = await taken(first, 2)
    second = OfflineBatchSource(items(7), batch_size=3)
    second.load_state_dict(first.state_dict())
    assert start + await taken(second, 4) == straight


async def test_rollouts_get_the_credit_of_the_trainers_algorithm_over_all_of_them():
    # Each less the mean of the others: 3 - 1, 0 - 2, 2 - 1.5.
    rollouts = [rollout((call([1], [2 + i]),), rewards=[r]) for i, r in enumerate([4.0, 0.0, 2.0])]
    for data in (rollouts, [*map(trajectory_from, rollouts)]):
        source = OfflineBatchSource(data, batch_size=1)
        rows = [row for _ in range(3) for row in (await source.next_batch(rloo())).items]
        assert {int(row.input_ids[1]): float(row.weight[1]) for row in rows} == {2: 3, 3: -3, 4: 0}


async def test_rows_keep_their_weights():
    (row,) = (await OfflineBatchSource(items(1), batch_size=1).next_batch(rloo())).items
    assert row.weight.tolist() == [1, 1]


async def test_rows_that_are_made_when_taken_come_in_the_order_of_those_made_before():
    made = Counter()

    def rows_of(name, item):
        made[name] += 1
        return [replace(item, rollout=name), replace(item, rollout=name)]

    named = list(zip("abcdefg", items(7), strict=True))
    functions = [partial(rows_of, *pair) for pair in named]
    before = [row for pair in named for row in rows_of(*pair)]
    made.clear()

    late, early = (OfflineBatchSource(data, batch_size=3) for data in (functions, before))
    first = await taken(late, 1)
    assert sorted(made.values()) == [1, 1, 1]
    assert [*first, *await taken(late, 6)] == await taken(early, 7)
    assert made == dict.fromkeys("abcdefg", 1)


@pytest.mark.parametrize("data", [[lambda: items(1)] * 2, items(2)])
async def test_fewer_rollouts_than_a_batch_are_refused(data):
    with pytest.raises(ConfigError, match="batch_size=3 with 2 rollouts"):
        await OfflineBatchSource(data, batch_size=3).next_batch(sft())


async def test_an_algorithm_that_keeps_nothing_leaves_nothing_to_learn():
    cut = rollout((call([1], [2]),), truncated=True)
    with pytest.raises(EmptyBatch, match="keeps none of 2"):
        await OfflineBatchSource([cut, cut], batch_size=1).next_batch(sft(filter=drop_truncated))


@pytest.mark.parametrize(("size", "count"), [(0, 4), (1, 0)])
def test_sizes_that_make_no_batch_are_refused(size, count):
    with pytest.raises(ConfigError, match=f"batch_size={size} with {count} rollouts or rows"):
        OfflineBatchSource(items(count), batch_size=size)


@pytest.mark.parametrize("seed", range(4))
async def test_rows_of_a_rollout_come_together_and_as_another_one_in_the_next_pass(seed):
    # As one rollout of twice the tokens, ratios and margins of rollouts would be other numbers.
    rows = [replace(item, rollout=name) for item, name in zip(items(6), "aabbcc", strict=True)]
    source = OfflineBatchSource(rows, batch_size=2, seed=seed)
    for _ in range(3):
        batch = (await source.next_batch(sft())).items
        assert [len(members) for members in by_sequence(batch)] == [2, 2]


@pytest.mark.parametrize("state", [{}, {"cursor": "1-0", "trained": 3}, {"taken": 8, "games": 8}])
def test_the_state_of_another_kind_of_source_is_refused(state):
    with pytest.raises(CheckpointError, match="kept"):
        OfflineBatchSource(items(4), batch_size=2).load_state_dict(state)
