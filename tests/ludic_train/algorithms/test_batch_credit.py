import json
import math

import numpy as np
import pytest
from golden import losses as golden
from trajectories import plain
from trajectories import trajectory as rollout

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.batch_credit import (
    BatchCenteredReturn,
    OverlongPenalty,
    SeatBaselineReturn,
    TokenWhitened,
)
from ludic_train.algorithms.credit import EpisodicReturn, GroupNormalizedReturn


def test_the_batch_baseline_is_the_mean_over_the_steps_of_the_other_rollouts():
    # Returns 3, 2 and 1: the mean of the others' is 1 for the first rollout, 2.5 for the second.
    assert plain(BatchCenteredReturn()([rollout(1, 2), rollout(1)])) == [[2.0, 1.0], [-1.5]]
    assert plain(BatchCenteredReturn()([rollout(1, 2)])) == [[3.0, 2.0]]


def test_whitened_returns_equal_the_published_ones():
    rollouts = [
        rollout(reward, tokens=tokens)
        for reward, tokens in zip(golden.INPUTS["reward"], golden.COUNTS, strict=True)
    ]
    weights = [w for (w,) in TokenWhitened()(rollouts)]
    np.testing.assert_allclose(weights, golden.DATA["advantages"]["reinforce++"], rtol=1e-6)


def test_whitening_returns_centred_in_their_group_counts_a_step_once_per_token():
    # Centred: +-1 on one token each, +-2 on three. Mean 0; variance (2 * 1 + 6 * 4) / (8 - 1).
    short = [rollout(r, group="a") for r in (2.0, 0.0)]
    long = [rollout(r, group="b", tokens=3) for r in (4.0, 0.0)]
    assigner = TokenWhitened(GroupNormalizedReturn(divide_by_std=False))
    std = math.sqrt(26 / 7)
    weights = [w for (w,) in assigner([*short, *long])]
    assert weights == pytest.approx([1 / std, -1 / std, 2 / std, -2 / std])


def test_equal_returns_are_whitened_to_nothing():
    assert plain(TokenWhitened()([rollout(0.1 + 0.2), rollout(0.3)])) == [[0.0], [0.0]]
    assert plain(TokenWhitened()([rollout(1.0)])) == [[0.0]]


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(16384, 0), (17408, -0.25), (18432, -0.5), (20480, -1), (99999, -1)]
)
def test_overlong_penalties_equal_the_published_ones(tokens, penalty):
    assert OverlongPenalty(EpisodicReturn(), 20480, 4096).penalty(np.array([tokens])) == [penalty]


def test_overlong_completions_lose_reward_before_credit():
    credit = OverlongPenalty(EpisodicReturn(), max_tokens=10, buffer=4)
    # 8 tokens are 2 of the 4 in the buffer, in both steps.
    assert plain(credit([rollout(1, 0, tokens=8)])) == [[0.0, 0.0]]


def test_each_seat_is_compared_with_its_own_past():
    credit = SeatBaselineReturn(decay=0.5)
    # The first batch starts each mean at its own: 0 for X, 1 for O.
    games = [rollout(1, agent="X"), rollout(-1, agent="X"), rollout(1, agent="O")]
    assert plain(credit(games)) == [[1.0], [-1.0], [0.0]]
    # X: 0 -> 0.5 -> -0.25; O stays at 1.
    assert plain(credit([rollout(1, agent="X"), rollout(0, agent="O")])) == [[1.25], [-1.0]]


def test_seat_baselines_go_on_after_json():
    one, other = SeatBaselineReturn(), SeatBaselineReturn()
    one([rollout(0.3), rollout(1)])
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert plain(other([rollout(0.7)])) == plain(one([rollout(0.7)]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: OverlongPenalty(EpisodicReturn(), 10, 11),
        lambda: OverlongPenalty(EpisodicReturn(), 10, 5, factor=-1),
        lambda: OverlongPenalty(EpisodicReturn(), 10, 5, factor=float("nan")),
        lambda: BatchCenteredReturn(1.5),
        lambda: SeatBaselineReturn(1.0),
        lambda: TokenWhitened(ddof=2),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ConfigError):
        make()
