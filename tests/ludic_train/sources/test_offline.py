from collections import Counter

import numpy as np
import pytest

from ludic_gym.errors import ConfigError
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
    rows = [row for _ in range(batches) for row in (await source.next_batch()).items]
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


async def test_a_batch_of_all_rows_is_one_pass():
    assert Counter(await taken(OfflineBatchSource(items(4), batch_size=4), 2)) == dict.fromkeys(
        range(4), 2
    )


@pytest.mark.parametrize("size", [0, 5])
def test_a_batch_size_that_cannot_be_filled_is_refused(size):
    with pytest.raises(ConfigError, match=f"batch_size={size} with 4 rows"):
        OfflineBatchSource(items(4), batch_size=size)
