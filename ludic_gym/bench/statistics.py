"""Confidence intervals of rates and means, with tasks as the independent draws.

Samples of one task are not independent, so the number of tasks determines the width (Miller 2024,
"Adding Error Bars to Evals", arXiv:2411.00640).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ludic_gym.errors import ConfigError

RESAMPLES = 2000
# Different values up to which counts of them are drawn: a draw per value, and not per task.
_FEW_KINDS = 64
# 32 MB of indices.
_DRAWS_AT_ONCE = 4_000_000


class Interval(NamedTuple):
    """Two bounds, both included.

    >>> f"{Interval(0.5, 1.0):.2f}"
    '[0.50, 1.00]'
    """

    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """Both bounds by the format of a number."""
        return f"[{self.low:{spec}}, {self.high:{spec}}]"

    def in_percent(self) -> str:
        """Both bounds as percentages with a digit."""
        return f"{Interval(100 * self.low, 100 * self.high):.1f}"


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Interval of the success probability, within [0, 1] (Wilson 1927, JASA 22, 209-212).

    The bounds are the two p with (successes / trials - p)^2 = z^2 p (1 - p) / trials, which also
    hold for 0 and for `trials` successes. Without trials it is [0, 1].
    Raises ConfigError for impossible counts or an impossible confidence.

    >>> "[{:.3f}, {:.3f}]".format(*wilson_interval(8, 10))
    '[0.490, 0.943]'
    >>> wilson_interval(0, 0)
    Interval(low=0.0, high=1.0)
    """
    if not 0 <= successes <= trials:
        raise ConfigError(f"{successes} successes of {trials} trials cannot be")
    return _wilson(successes, trials, float(trials), confidence)


def clustered_wilson_interval(
    successes: Sequence[int], trials: Sequence[int], confidence: float = 0.95
) -> Interval:
    """Wilson's interval for tasks with several samples: `successes[i]` of `trials[i]`.

    Wilson's formula with the effective number of trials: the number of independent trials whose
    rate would have the variance that is observed over tasks (Korn and Graubard 1998, Survey
    Methodology 24, 193-201). It lies between the number of tasks (samples of a task always agree)
    and the number of trials (samples are independent). At a rate of 0 or 1 it is the number of
    tasks.

    Four samples of two tasks that always agree are worth two trials, not eight:

    >>> clustered_wilson_interval([4, 0], [4, 4]) == wilson_interval(1, 2)
    True
    """
    if any(not 0 <= s <= n for s, n in zip(successes, trials, strict=True)):
        raise ConfigError(f"{list(successes)} successes of {list(trials)} trials cannot be")
    size = _effective_trials(successes, trials)
    return _wilson(sum(successes), sum(trials), size, confidence)


def _wilson(successes: int, trials: int, size: float, confidence: float) -> Interval:
    z = normal_quantile(confidence)
    if trials == 0:
        return Interval(0.0, 1.0)
    rate, spread = successes / trials, z * z / size
    # The equation is quadratic in p; the bounds are its two roots, centre - half and centre + half.
    centre = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(rate * (1 - rate) * spread + spread * spread / 4) / (1 + spread)
    # At 0 and at `trials` successes the bound is exactly 0 or 1, which floats miss by an ulp.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(low, high)


def _effective_trials(successes: Sequence[int], trials: Sequence[int]) -> float:
    # Tasks without a sample carry no evidence, so they count as no draw.
    played, total = sum(n > 0 for n in trials), sum(trials)
    # With a rate of 0 or 1 no variance is observed: assume that samples of a task always agree.
    if played == total or sum(successes) in (0, total):
        return played
    # The variance of the rate over tasks is scatter / total^2 (a ratio estimator, linearized); that
    # of independent trials is rate (1 - rate) / size. Equate both and solve for the size.
    rate = sum(successes) / total
    scatter = math.fsum((s - n * rate) ** 2 for s, n in zip(successes, trials, strict=True))
    # Every task has exactly the mean rate, which is less scatter than chance would give.
    if scatter == 0.0:
        return total
    return min(float(total), rate * (1 - rate) * total * total / scatter)


def bootstrap_interval(
    totals: Sequence[float],
    counts: Sequence[int] | None = None,
    *,
    confidence: float = 0.95,
    bounds: Interval | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Interval of the mean, by resampling tasks (Efron 1979, Annals of Statistics 7, 1-26).

    totals: the sum of each task's values. counts: the number of values of each task; None: one.
    bounds: the least and the largest value that a task could have; None if unknown.
    The interval has percentiles of sum(totals) / sum(counts) over the resamples; equal for equal
    seeds. Tasks of one mean show no spread, which is no proof of none: then other tasks, a share of
    up to `unseen_share`, may have either bound; without `bounds` there is no interval.
    Raises ConfigError for fewer than two tasks.

    Of three tasks without a difference, 63% of all may still have one, of 1 or -1:

    >>> f"{bootstrap_interval([0.0] * 3, bounds=Interval(-1.0, 1.0)):.2f}"
    '[-0.63, 0.63]'
    """
    # For its check only: percentiles of the resamples need no quantile.
    normal_quantile(confidence)
    if len(totals) < 2:
        raise ConfigError(f"an interval needs at least 2 values, got {len(totals)}")
    sums = np.asarray(totals, dtype=np.float64)
    sizes = np.ones(len(sums)) if counts is None else np.asarray(counts, dtype=np.float64)
    if has_no_spread(sums / sizes):
        if bounds is None:
            return None
        mean, share = float(sums.sum() / sizes.sum()), unseen_share(len(sums), confidence)
        low, high = (mean + share * (bound - mean) for bound in bounds)
        return Interval(low, high)
    means = _resampled_means(sums, sizes, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def has_no_spread(values: Sequence[float] | np.ndarray) -> bool:
    """True if all values are equal, but for rounding."""
    return float(np.ptp(values)) <= 1e-12 * max(1.0, float(np.abs(values).max()))


def unseen_share(count: int, confidence: float = 0.95) -> float:
    """Largest share of tasks of another kind, where `count` drawn tasks are all of one kind.

    1 - (1 - confidence)^(1 / count), the exact one-sided bound (Clopper and Pearson 1934,
    Biometrika 26, 404-413); about 3 / count, the rule of three (Hanley and Lippman-Hand 1983,
    JAMA 249, 1743-1745).

    >>> round(unseen_share(20), 3), 3 / 20
    (0.139, 0.15)
    """
    return float(1.0 - (1.0 - confidence) ** (1.0 / count))


def _resampled_means(
    sums: np.ndarray, sizes: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """The mean of each resample, [resamples]; drawn in pieces, to bound the memory."""
    kinds, counts = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    # Rewards are mostly 0 or 1, and how often each value is drawn is all that a mean needs.
    if len(counts) <= _FEW_KINDS:
        amounts = rng.multinomial(len(sums), counts / len(sums), size=resamples)
        drawn = kinds @ amounts.T
        means: np.ndarray = drawn[0] / drawn[1]
        return means
    rows = max(1, _DRAWS_AT_ONCE // len(sums))
    pieces = []
    # Sums of equal whole numbers are exact, so they need no look at what was drawn.
    equal = bool((sizes == sizes[0]).all())
    for start in range(0, resamples, rows):
        drawn = rng.integers(0, len(sums), size=(min(rows, resamples - start), len(sums)))
        # Numerator and denominator of the same draw: tasks with many samples weigh more.
        drawn_sizes = sizes[0] * len(sums) if equal else sizes[drawn].sum(axis=1)
        pieces.append(sums[drawn].sum(axis=1) / drawn_sizes)
    return np.concatenate(pieces)


def pass_at_k(successes: int, trials: int, k: int) -> float:
    """The probability that at least one of k samples succeeds, unbiased (Chen et al. 2021).

    1 - C(trials - successes, k) / C(trials, k), arXiv:2107.03374. Raises ConfigError unless
    1 <= k <= trials and 0 <= successes <= trials.

    >>> [round(pass_at_k(2, 4, k), 3) for k in (1, 2, 3, 4)]
    [0.5, 0.833, 1.0, 1.0]
    """
    _check_k(successes, trials, k)
    return 1.0 - math.comb(trials - successes, k) / math.comb(trials, k)


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """The probability that all of k samples succeed, unbiased (Yao et al. 2024, tau-bench).

    C(successes, k) / C(trials, k), arXiv:2406.12045. Raises ConfigError as `pass_at_k` does.

    >>> [round(pass_hat_k(2, 4, k), 3) for k in (1, 2, 3, 4)]
    [0.5, 0.167, 0.0, 0.0]
    """
    _check_k(successes, trials, k)
    return math.comb(successes, k) / math.comb(trials, k)


def _check_k(successes: int, trials: int, k: int) -> None:
    if not (1 <= k <= trials and 0 <= successes <= trials):
        raise ConfigError(f"k={k} samples with {successes} successes of {trials} trials cannot be")


def normal_quantile(confidence: float) -> float:
    """The normal quantile that leaves (1 - confidence) / 2 above it.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence must lie between 0 and 1, got {confidence}")
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)
