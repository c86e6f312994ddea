import math
from dataclasses import replace

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.algorithms.filters import (
    combine,
    drop_incomplete_completions,
    drop_parse_errors,
    drop_stale,
    drop_truncated,
    drop_zero_variance_groups,
    keep_best,
)


def rollout(*rewards, group="g", agent="agent", truncated=False):
    steps = [Step(observation="", decision=Decision(action="x"), reward=r) for r in rewards]
    if steps:
        steps[-1] = replace(steps[-1], truncated=truncated)
    return Rollout(task=Task(env_id="ludic/X-v0", group=group), steps=tuple(steps), agent=agent)


def decided(decision):
    step = Step(observation="", decision=decision, reward=0.0)
    return Rollout(task=Task(env_id="ludic/X-v0"), steps=(step,))


def test_truncated_episodes_are_dropped():
    whole, cut = rollout(1.0), rollout(1.0, truncated=True)
    assert drop_truncated([cut, whole, rollout()]) == [whole, rollout()]


def test_rollouts_with_an_unparsed_decision_are_dropped():
    good, bad = decided(Decision(action="")), decided(Decision(action=None))
    assert drop_parse_errors([good, bad]) == [good]


def test_rollouts_with_a_cut_off_completion_are_dropped():
    stop = Completion(text="a", finish_reason="stop")
    length = Completion(text="a", finish_reason="length")
    good = decided(Decision(action="x", completions=(stop, stop)))
    bad = decided(Decision(action="x", completions=(length, stop)))
    assert drop_incomplete_completions([bad, good]) == [good]


def test_groups_without_spread_are_dropped_whole():
    flat = [rollout(1.0, group="a"), rollout(0.5, 0.5, group="a")]
    mixed = [rollout(1.0, group="b"), rollout(0.0, group="b"), rollout(1.0, group="b")]
    assert drop_zero_variance_groups()([flat[0], *mixed, flat[1]]) == mixed


def test_rounding_is_no_spread():
    group = [rollout(0.1, 0.2), rollout(0.3)]
    assert group[0].total_reward != group[1].total_reward
    assert drop_zero_variance_groups()(group) == []
    assert drop_zero_variance_groups(tolerance=0.0)(group) == group


def test_a_group_of_one_has_no_spread():
    assert drop_zero_variance_groups()([rollout(1.0)]) == []


def test_rollouts_without_a_group_are_kept():
    loose = [rollout(1.0, group=""), rollout(1.0, group="")]
    assert drop_zero_variance_groups()(loose) == loose


def test_spread_is_seen_per_agent():
    # X always wins: neither side has anything to compare, though the match has both signs.
    match = [rollout(1.0, agent="X"), rollout(-1.0, agent="O")]
    assert drop_zero_variance_groups()([*match, *match]) == []


def test_a_nan_is_left_to_the_credit_assigner():
    nan, one = rollout(math.nan), rollout(1.0)
    assert drop_zero_variance_groups()([nan, one]) == [nan, one]
    assert drop_zero_variance_groups()([one, nan]) == [one, nan]


def test_combine_applies_from_left_to_right():
    group = [rollout(1.0), rollout(1.0), rollout(0.0, truncated=True)]
    variance = drop_zero_variance_groups()
    # dropping the truncated one first leaves a group without spread
    assert combine(drop_truncated, variance)(group) == []
    assert combine(variance, drop_truncated)(group) == group[:2]
    assert combine()(group) == group


@pytest.mark.parametrize("tolerance", [-1.0, math.nan])
def test_an_impossible_tolerance_is_refused(tolerance):
    with pytest.raises(ConfigError, match="tolerance"):
        drop_zero_variance_groups(tolerance)


def test_rollouts_of_old_params_are_dropped():
    def sampled_at(*versions):
        calls = [Completion(text="", finish_reason="stop", policy_version=v) for v in versions]
        return decided(Decision(action="x", completions=tuple(calls)))

    fresh, half, old, recorded = sampled_at(5, 7), sampled_at(4, 7), sampled_at(1), sampled_at(None)
    assert drop_stale(lambda: 7, 2)([fresh, half, old, recorded]) == [fresh, recorded]


def test_the_best_of_each_group_are_kept_in_order_if_they_earned_enough():
    a = [rollout(0.2, group="a"), rollout(0.9, group="a"), rollout(0.9, group="a")]
    b = [rollout(0.0, group="b"), rollout(-1.0, group="b")]
    alone = [rollout(0.5, group=""), rollout(0.4, group="")]
    everything = [b[0], a[0], alone[0], a[1], a[2], b[1], alone[1]]
    assert keep_best(1)(everything) == [alone[0], a[1], alone[1]]
    assert keep_best(2, above=0.45)(everything) == [alone[0], a[1], a[2]]
    assert keep_best(9, above=-2.0)(everything) == everything


@pytest.mark.parametrize("bad", [{"count": 0}, {"above": math.nan}])
def test_a_selection_that_cannot_be_made_is_refused(bad):
    with pytest.raises(ConfigError, match=r"count=\d, above="):
        keep_best(**bad)
