"""Intervals around what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from ludic_gym.errors import ConfigError


class Interval(NamedTuple):
    """Two bounds, both included."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Where the success probability lies, within [0, 1] (Wilson 1927, JASA 22, 209-212).

    The bounds are the two p with (successes / trials - p)^2 = z^2 p (1 - p) / trials, so they
    stay sensible at 0 and at `trials` successes. Without trials it is [0, 1].
    Raises ConfigError for counts or a confidence that cannot be.
    """
    if not 0 <= successes <= trials:
        raise ConfigError(f"{successes} successes of {trials} trials cannot be")
    z = _z(confidence)
    if trials == 0:
        return Interval(0.0, 1.0)
    rate, spread = successes / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(rate * (1 - rate) * spread + spread * spread / 4) / (1 + spread)
    # At the ends the formula gives 0 and 1 exactly; the floats miss them by an ulp.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(low, high)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Where the mean lies by the normal approximation: mean -+ z s / sqrt(n), s with ddof 1.

    Raises ConfigError for fewer than two values, which say nothing about their spread.
    """
    if len(values) < 2:
        raise ConfigError(f"an interval needs at least 2 values, got {len(values)}")
    half = _z(confidence) * stdev(values) / math.sqrt(len(values))
    mean = fmean(values)
    return Interval(mean - half, mean + half)


def _z(confidence: float) -> float:
    """The normal quantile that leaves (1 - confidence) / 2 above it."""
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence must lie between 0 and 1, got {confidence}")
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)
