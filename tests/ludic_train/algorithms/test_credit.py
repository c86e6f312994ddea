import math
import random

import numpy as np
import pytest
from golden import losses as golden
from hypothesis import given
from hypothesis import strategies as st
from trajectories import plain
from trajectories import trajectory as rollout

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.credit import (
    ConstantCredit,
    EpisodicReturn,
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    LeaveOneOutReturn,
    MonteCarloReturn,
    PerStepReward,
)
from ludic_train.errors import CreditError

RELATIVE = [
    GroupNormalizedReturn(),
    GroupNormalizedReturn(divide_by_std=False),
    HybridNormalizedReturn(),
    LeaveOneOutReturn(),
]


def golden_rollouts():
    pairs = zip(golden.INPUTS["reward"], golden.INPUTS["group"], strict=True)
    return [rollout(reward, group=str(group)) for reward, group in pairs]


def test_return_to_go_is_discounted_step_by_step():
    # 4; 2 + 0.5 * 4 = 4; 1 + 0.5 * 4 = 3
    assert plain(MonteCarloReturn(gamma=0.5)([rollout(1, 2, 4)])) == [[3.0, 4.0, 4.0]]
    assert plain(MonteCarloReturn()([rollout(1, 2, 4), rollout(-1.0)])) == [[7.0, 6.0, 4.0], [-1.0]]
    assert plain(MonteCarloReturn(gamma=0)([rollout(1, 2, 4)])) == [[1.0, 2.0, 4.0]]


def test_plain_assigners_by_hand():
    rollouts = [rollout(1, 2), rollout(-1.0)]
    assert plain(EpisodicReturn()(rollouts)) == [[3.0, 3.0], [-1.0]]
    assert plain(PerStepReward()(rollouts)) == [[1.0, 2.0], [-1.0]]
    assert plain(ConstantCredit(0.5)(rollouts)) == [[0.5, 0.5], [0.5]]


@pytest.mark.parametrize(
    ("name", "assigner"),
    [
        ("grpo ddof=1 eps=1e-6", GroupNormalizedReturn(ddof=1, eps=1e-6)),
        ("centred", GroupNormalizedReturn(divide_by_std=False)),
        ("rloo", LeaveOneOutReturn()),
        ("centred / batch std ddof=0", HybridNormalizedReturn(eps=0)),
    ],
)
def test_advantages_equal_the_published_ones(name, assigner):
    weights = [w for (w,) in assigner(golden_rollouts())]
    # The published functions work in float32 in places.
    np.testing.assert_allclose(weights, golden.DATA["advantages"][name], rtol=1e-7)


def test_group_statistics_by_hand():
    # returns 1 + 2, 0, 6: mean 3, deviations 0, -3, 3; std ddof=0 sqrt(6), ddof=1 3.
    group = [rollout(1, 2), rollout(0), rollout(6)]
    assert plain(GroupNormalizedReturn(eps=0)(group)) == [[0.0, 0.0], [-1.0], [1.0]]
    (_, (low,), (high,)) = GroupNormalizedReturn(ddof=0, eps=0)(group)
    assert (low, high) == pytest.approx((-3 / math.sqrt(6), 3 / math.sqrt(6)))
    # less the mean of the others: 3 - 3, 0 - 4.5, 6 - 1.5
    assert plain(LeaveOneOutReturn()(group)) == [[0.0, 0.0], [-4.5], [4.5]]


@pytest.mark.parametrize("assigner", RELATIVE, ids=repr)
@pytest.mark.parametrize("returns", [(1.0, 1.0), (0.1 + 0.2, 0.3), (1e6, 1e6, 1e6)])
def test_a_group_of_equal_returns_gets_exactly_zero(assigner, returns):
    weights = assigner([rollout(r) for r in returns])
    assert plain(weights) == [[0.0]] * len(returns)


@pytest.mark.parametrize("assigner", RELATIVE, ids=repr)
def test_rollouts_that_have_nothing_to_be_compared_with_are_refused(assigner):
    assert assigner([]) == []
    with pytest.raises(CreditError, match="'b' has a single rollout"):
        assigner([rollout(1, group="a"), rollout(2, group="a"), rollout(3, group="b")])
    with pytest.raises(CreditError, match="grouped"):
        assigner([rollout(1, group=""), rollout(2, group="")])


def test_players_of_a_match_are_compared_with_their_own_kind():
    match = [rollout(1, agent="X"), rollout(-1, agent="O")]
    assert plain(GroupNormalizedReturn()([*match, *match])) == [[0.0]] * 4
    with pytest.raises(CreditError, match="single rollout of 'X'"):
        GroupNormalizedReturn()(match)


@pytest.mark.parametrize("assigner", [*RELATIVE, MonteCarloReturn(), PerStepReward()], ids=repr)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused(assigner, bad):
    with pytest.raises(CreditError, match=r"\[0\.0, (nan|inf)\]"):
        assigner([rollout(0, bad), rollout(0, 1)])


REWARDS = st.lists(st.lists(st.integers(-8, 8).map(float), min_size=1, max_size=3), min_size=2)


@pytest.mark.parametrize("assigner", RELATIVE, ids=repr)
@given(rewards=st.lists(REWARDS, min_size=1, max_size=4), seed=st.integers(0, 99))
def test_order_does_not_matter(assigner, rewards, seed):
    rollouts = [rollout(*r, group=str(g)) for g, group in enumerate(rewards) for r in group]
    order = random.Random(seed).sample(range(len(rollouts)), len(rollouts))
    straight, shuffled = assigner(rollouts), assigner([rollouts[i] for i in order])
    for i, weights in zip(order, shuffled, strict=True):
        np.testing.assert_allclose(weights, straight[i], atol=1e-9)


@pytest.mark.parametrize("assigner", [a for a in RELATIVE if a != HybridNormalizedReturn()])
@given(rewards=st.lists(REWARDS, min_size=1, max_size=4))
def test_groups_do_not_see_each_other(assigner, rewards):
    apart = [[rollout(*r, group=str(g)) for r in group] for g, group in enumerate(rewards)]
    together = assigner([r for group in apart for r in group])
    assert plain(together) == plain(weights for group in apart for weights in assigner(group))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MonteCarloReturn(1.5),
        lambda: ConstantCredit(math.inf),
        lambda: GroupNormalizedReturn(ddof=2),
        lambda: GroupNormalizedReturn(eps=-1e-6),
        lambda: HybridNormalizedReturn(eps=math.nan),
    ],
)
def test_impossible_values_are_refused_at_construction(make):
    with pytest.raises(ConfigError):
        make()
