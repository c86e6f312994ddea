import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.bench import mean_interval, wilson_interval
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


def test_wilson_interval_of_no_success_is_z2_over_n_plus_z2():
    assert wilson_interval(0, 1319) == pytest.approx((0.0, Z**2 / (1319 + Z**2)), abs=1e-15)


def test_wilson_interval_of_all_successes_reaches_one_exactly():
    low, high = wilson_interval(1319, 1319)
    assert low == pytest.approx(1319 / (1319 + Z**2))
    assert high == 1.0


def test_without_trials_the_rate_can_be_anything():
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_bounds_solve_the_score_equation(counts):
    successes, trials = counts
    for p in wilson_interval(successes, trials):
        assert (successes / trials - p) ** 2 == pytest.approx(
            Z**2 * p * (1 - p) / trials, abs=1e-12
        )


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_mirrors_when_failures_are_counted(counts):
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


def test_more_confidence_means_a_wider_interval():
    narrow, wide = wilson_interval(5, 10, confidence=0.5), wilson_interval(5, 10, confidence=0.99)
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (0, -1)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ConfigError, match=f"{successes} successes of {trials}"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_confidence_is_a_share(confidence):
    with pytest.raises(ConfigError, match="confidence"):
        wilson_interval(1, 2, confidence=confidence)


def test_mean_interval_is_mean_and_z_standard_errors():
    # mean 2.5, squared deviations 2.25 + .25 + .25 + 2.25 = 5, s = sqrt(5/3), se = sqrt(5/12)
    half = Z * math.sqrt(5 / 12)
    assert mean_interval([1.0, 2.0, 3.0, 4.0]) == pytest.approx((2.5 - half, 2.5 + half))


def test_mean_interval_of_equal_values_is_a_point():
    assert mean_interval([1.0] * 7) == (1.0, 1.0)


def test_one_value_has_no_interval():
    with pytest.raises(ConfigError, match="at least 2 values, got 1"):
        mean_interval([1.0])
