from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.bench.statistics import (
    Interval,
    bootstrap_interval,
    clustered_wilson_interval,
    pass_at_k,
    pass_hat_k,
    unseen_share,
    wilson_interval,
)
from ludic_gym.errors import ConfigError

Z = NormalDist().inv_cdf(0.975)


# The four examples of Newcombe (1998), Statistics in Medicine 17, table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_is_the_published_one(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_is_that_of_scipy(counts):
    from scipy import stats

    expected = stats.binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert wilson_interval(*counts) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (1, 0)])
def test_counts_that_cannot_be_are_refused(successes, trials):
    with pytest.raises(ConfigError, match=f"{successes} successes of {trials} trials"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 95])
def test_a_confidence_outside_0_and_1_is_refused(confidence):
    with pytest.raises(ConfigError, match="confidence must lie between 0 and 1"):
        wilson_interval(1, 2, confidence)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_tasks_that_are_played_once_give_wilsons_interval(won):
    clustered = clustered_wilson_interval([int(w) for w in won], [1] * len(won))
    assert clustered == pytest.approx(wilson_interval(sum(won), len(won)))


def test_samples_that_end_alike_count_once():
    # 3 of 10 tasks won, all 8 samples alike: scatter = 10 * 8^2 * 0.3 * 0.7, so
    # n* = 0.21 * 80^2 / (640 * 0.21) = 10.
    clustered = clustered_wilson_interval([8] * 3 + [0] * 7, [8] * 10)
    assert clustered == pytest.approx(wilson_interval(3, 10))


def test_samples_that_scatter_as_coins_do_count_each():
    # The binomial variance of 4 coins is 1, as is that of these successes around 2: n* = n.
    successes = [3, 1, 3, 1, 2, 2, 3, 1, 3, 1]
    scatter = sum((s - 2) ** 2 for s in successes)
    assert scatter == 8
    clustered = clustered_wilson_interval(successes, [4] * 10)
    assert clustered == pytest.approx(wilson_interval(20, 40))


def test_at_a_rate_of_one_the_tasks_count():
    assert clustered_wilson_interval([5] * 4, [5] * 4) == wilson_interval(4, 4)


def test_the_clustered_interval_covers_the_rate_as_often_as_it_says():
    # 40 tasks of their own difficulty, 5 samples each; the mean difficulty is what is estimated.
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        wins = rng.binomial(5, rng.beta(0.6, 0.9, size=40))
        low, high = clustered_wilson_interval(wins.tolist(), [5] * 40)
        hits += low <= 0.4 <= high
    # 95% of 400 is 380 with a standard deviation of 4.4; trials that counted each give about 320.
    assert 363 <= hits <= 397


def test_bootstrap_interval_is_that_of_scipy():
    from scipy import stats

    values = np.random.default_rng(1).exponential(size=80)
    ours = bootstrap_interval(values.tolist())
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", rng=2, n_resamples=2000
    ).confidence_interval
    # Two draws of 2,000 resamples differ by about a tenth of the standard error of 0.13.
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.04)


def test_bootstrap_resamples_tasks_not_samples():
    # Four samples a task, all alike: the interval is that of the ten tasks.
    totals = [0.0, 4.0] * 5
    clustered = bootstrap_interval(totals, [4] * 10)
    assert clustered == bootstrap_interval([t / 4 for t in totals])
    assert clustered == pytest.approx((0.2, 0.8), abs=0.101)


def test_bootstrap_weighs_tasks_by_their_samples():
    # Mean (0 + 9) / (1 + 3): a resample of only the second gives 3, of only the first 0.
    assert bootstrap_interval([0.0, 9.0], [1, 3]) == (0.0, 3.0)


def test_equal_values_leave_a_share_of_others_possible():
    # 0.05^(1/20) = 0.8609: a share of 0.1391 may lie at either bound.
    zero = bootstrap_interval([0.0] * 20, bounds=Interval(-1.0, 1.0))
    assert zero == pytest.approx((-0.1391, 0.1391), abs=1e-4)
    won = bootstrap_interval([1.0] * 20, bounds=Interval(-1.0, 1.0))
    assert won == pytest.approx((1 - 2 * 0.1391, 1.0), abs=1e-4)
    half = bootstrap_interval([2.0] * 20, [4] * 20, bounds=Interval(-1.0, 1.0))
    assert half == pytest.approx((0.5 - 1.5 * 0.1391, 0.5 + 0.5 * 0.1391), abs=1e-4)
    # 0.1 + 0.2 is not 0.3 in floats.
    assert bootstrap_interval([0.1 + 0.2, 0.3, 0.3]) is None


@pytest.mark.parametrize("count", [2, 5, 50])
def test_the_share_of_the_unseen_is_the_exact_bound_of_scipy(count):
    from scipy import stats

    theirs = stats.binomtest(0, count, alternative="less").proportion_ci(0.95, "exact").high
    assert unseen_share(count) == pytest.approx(theirs, rel=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_and_pass_hat_k_are_means_over_all_choices_of_k_samples(won, data):
    k = data.draw(st.integers(1, len(won)))
    chosen = list(combinations(won, k))
    counts = (sum(won), len(won), k)
    assert pass_at_k(*counts) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    assert pass_hat_k(*counts) == pytest.approx(sum(map(all, chosen)) / len(chosen))


@pytest.mark.parametrize("counts", [(1, 4, 0), (1, 4, 5), (5, 4, 1), (-1, 4, 1)])
def test_samples_that_cannot_be_are_refused(counts):
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ConfigError, match="cannot be"):
            estimate(*counts)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_rate_lies_inside(counts):
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
