import numpy as np
import pytest
from golden import losses as golden
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import ConfigError, DataError
from ludic_train.algorithms.aggregation import (
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
)

# Two groups: rows of 1 and 3 action tokens in "a", one of 2 in "b"; masks have gaps.
ROWS = [
    golden.Row(np.array([0, 1, 0], bool), "a"),
    golden.Row(np.array([1, 0, 1, 1], bool), "a"),
    golden.Row(np.array([0, 1, 1], bool), "b"),
]
EMPTY = golden.Row(np.zeros(2, bool), "c")
ALL = [token_mean, sequence_mean, prompt_mean, ConstantLength(8)]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (token_mean, [[1 / 6], [1 / 6] * 3, [1 / 6] * 2]),
        # 3 rows: 1 / (3 n)
        (sequence_mean, [[1 / 3], [1 / 9] * 3, [1 / 6] * 2]),
        # 2 groups with 4 and 2 tokens: 1 / (2 n)
        (prompt_mean, [[1 / 8], [1 / 8] * 3, [1 / 4] * 2]),
        # 3 rows of at most 8
        (ConstantLength(8), [[1 / 24], [1 / 24] * 3, [1 / 24] * 2]),
    ],
)
def test_scales_by_hand(aggregation, expected):
    scales = aggregation(ROWS)
    assert [s.dtype for s in scales] == [np.float32] * 3
    for scale, row in zip(scales, expected, strict=True):
        np.testing.assert_allclose(scale, row, rtol=1e-7)


def test_rows_of_one_rollout_share_its_part():
    # A rollout of three rows with 1, 3 and 2 tokens beside one of a single row with 3.
    masks = [[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [0, 1, 1, 1]]
    rows = [
        golden.Row(np.array(mask, bool), "g", rollout)
        for mask, rollout in zip(masks, ["a", "a", "a", ""], strict=True)
    ]
    # Each rollout has half of a sequence mean: 1/2 over its 6 tokens, 1/2 over its 3.
    shares = [float(scale.sum()) for scale in sequence_mean(rows)]
    assert shares == pytest.approx([1 / 12, 3 / 12, 2 / 12, 1 / 2])
    # Two rollouts of at most 8 tokens.
    assert {float(x) for scale in ConstantLength(8)(rows) for x in scale} == {1 / 16}


@pytest.mark.parametrize("aggregation", ALL)
def test_rows_without_action_tokens_count_nowhere(aggregation):
    padded = aggregation([EMPTY, *ROWS])
    assert padded[0].size == 0
    for scale, alone in zip(padded[1:], aggregation(ROWS), strict=True):
        np.testing.assert_array_equal(scale, alone)
    assert [s.size for s in aggregation([EMPTY])] == [0]
    assert aggregation([]) == []


@pytest.mark.parametrize("aggregation", [token_mean, sequence_mean, prompt_mean])
@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=12).filter(any))
def test_means_give_one_in_all(aggregation, counts):
    rows = [golden.Row(np.arange(20) < n, str(i % 3)) for i, n in enumerate(counts)]
    total = sum(float(s.astype(np.float64).sum()) for s in aggregation(rows))
    assert total == pytest.approx(1, rel=1e-6)


def test_rows_without_a_group_and_lengths_of_0_are_refused():
    with pytest.raises(DataError, match="group"):
        prompt_mean([golden.Row(np.ones(1, bool), "")])
    with pytest.raises(ConfigError, match="0"):
        ConstantLength(0)
