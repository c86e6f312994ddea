"""Statistics that do not depend on how a batch was cut into micro-batches and ranks.

A mean of means is wrong as soon as the parts differ in size. So every part reports a `Stat`, the
sum and what it is a sum over, or another kind below; these add up, and the division happens once,
at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ludic_train.errors import MetricError


@dataclass(frozen=True, slots=True)
class Stat:
    """A weighted mean in the making: `sum` over `count` things (tokens, rollouts, seconds...)."""

    sum: float
    count: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat:
        """The statistic of plain values, each counted once."""
        known = tuple(values)
        return cls(math.fsum(known), len(known))

    @property
    def mean(self) -> float:
        """The sum over the count; nan where nothing was counted."""
        return self.sum / self.count if self.count else math.nan

    @property
    def value(self) -> float:
        """What is logged: the mean."""
        return self.mean


@dataclass(frozen=True, slots=True)
class Total:
    """A sum in the making, such as the loss of an update: its parts' values add up."""

    value: float


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest value of all parts; -inf where there was none."""

    value: float = -math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Peak:
        """The largest of plain values."""
        return cls(max(values, default=-math.inf))


@dataclass(frozen=True, slots=True)
class SampleSize:
    """The effective sample size of importance weights w, as a share of their number.

    (sum w)^2 / (n sum w^2) is 1 where all weights are equal and 1 / n where one has it all.
    """

    sum: float
    sum_of_squares: float
    count: float

    @property
    def value(self) -> float:
        """The share; nan where nothing was counted."""
        return self.sum**2 / (self.count * self.sum_of_squares) if self.count else math.nan


Metric = Stat | Total | Peak | SampleSize
"""A quantity whose parts can be merged."""

Metrics = dict[str, Metric]
"""Metrics by name."""
KINDS: dict[str, type[Metric]] = {kind.__name__: kind for kind in (Stat, Total, Peak, SampleSize)}


def merge(parts: Iterable[Mapping[str, Metric]]) -> Metrics:
    """The metrics of the whole from those of its parts, in any order; a part may lack a name.

    Raises MetricError where one name is a mean in one part and, say, a maximum in another.
    """
    whole: Metrics = {}
    for part in parts:
        for name, metric in part.items():
            whole[name] = _add(name, whole[name], metric) if name in whole else metric
    return whole


def _add(name: str, left: Metric, right: Metric) -> Metric:
    match left, right:
        case Stat(), Stat():
            return Stat(left.sum + right.sum, left.count + right.count)
        case Total(), Total():
            return Total(left.value + right.value)
        case Peak(), Peak():
            # max() would hide a nan that comes second.
            both = (left.value, right.value)
            return Peak(math.nan if any(map(math.isnan, both)) else max(both))
        case SampleSize(), SampleSize():
            squares = left.sum_of_squares + right.sum_of_squares
            return SampleSize(left.sum + right.sum, squares, left.count + right.count)
        case _:
            raise MetricError(f"metric {name!r} is {left} in one part and {right} in another")


def values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """One number per name, ready for a logger; names of which nothing was counted are left out."""
    return {name: metric.value for name, metric in metrics.items() if _counted(metric)}


def _counted(metric: Metric) -> bool:
    match metric:
        case Stat() | SampleSize():
            return metric.count > 0
        case Peak():
            return metric != Peak()
        case Total():
            return True
