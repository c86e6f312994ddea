import math

import pytest
from trajectories import trajectory as rollout

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.filters import (
    combine,
    drop_incomplete_completions,
    drop_parse_errors,
    drop_truncated,
    drop_zero_variance_groups,
    keep_best,
)


@pytest.mark.parametrize(
    ("select", "bad"),
    [
        (drop_truncated, rollout(1.0, truncated=True)),
        (drop_parse_errors, rollout(0.0, 0.0, parsed=False)),
        (drop_incomplete_completions, rollout(0.0, cut=True)),
    ],
)
def test_rollouts_with_a_fault_are_dropped(select, bad):
    good, empty = rollout(0.0, 0.0), rollout()
    assert select([bad, good, empty]) == [good, empty]


def test_groups_without_spread_are_dropped_whole():
    flat = [rollout(1.0, group="a"), rollout(0.5, 0.5, group="a")]
    mixed = [rollout(1.0, group="b"), rollout(0.0, group="b"), rollout(1.0, group="b")]
    assert drop_zero_variance_groups()([flat[0], *mixed, flat[1]]) == mixed


def test_rounding_is_no_spread():
    group = [rollout(0.1, 0.2), rollout(0.3)]
    assert group[0].total_reward != group[1].total_reward
    assert drop_zero_variance_groups()(group) == []
    assert drop_zero_variance_groups(tolerance=0.0)(group) == group


def test_a_group_of_one_has_no_spread_and_rollouts_without_a_group_are_kept():
    loose = [rollout(1.0, group=""), rollout(1.0, group="")]
    assert drop_zero_variance_groups()([rollout(1.0), *loose]) == loose


def test_spread_is_seen_per_agent():
    # X always wins: neither side has anything to compare, though the match has both signs.
    match = [rollout(1.0, agent="X"), rollout(-1.0, agent="O")]
    assert drop_zero_variance_groups()([*match, *match]) == []


def test_combine_applies_from_left_to_right():
    group = [rollout(1.0), rollout(1.0), rollout(0.0, truncated=True)]
    variance = drop_zero_variance_groups()
    # dropping the truncated one first leaves a group without spread
    assert combine(drop_truncated, variance)(group) == []
    assert combine(variance, drop_truncated)(group) == group[:2]
    assert combine()(group) == group


def test_the_best_of_each_group_are_kept_in_order_if_they_earned_enough():
    a = [rollout(0.2, group="a"), rollout(0.9, group="a"), rollout(0.9, group="a")]
    b = [rollout(0.0, group="b"), rollout(-1.0, group="b")]
    alone = [rollout(0.5, group=""), rollout(0.4, group="")]
    everything = [b[0], a[0], alone[0], a[1], a[2], b[1], alone[1]]
    assert keep_best(1)(everything) == [alone[0], a[1], alone[1]]
    assert keep_best(2, above=0.45)(everything) == [alone[0], a[1], a[2]]
    assert keep_best(9, above=-2.0)(everything) == everything


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (drop_zero_variance_groups, {"tolerance": -1.0}),
        (drop_zero_variance_groups, {"tolerance": math.nan}),
        (keep_best, {"count": 0}),
        (keep_best, {"above": math.nan}),
    ],
)
def test_a_selection_that_cannot_be_made_is_refused(make, wrong):
    with pytest.raises(ConfigError, match="|".join(wrong)):
        make(**wrong)
