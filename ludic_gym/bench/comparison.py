"""Comparison of two runs on the same tasks: difference, interval and p-value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from ludic_gym.bench.result import Score
from ludic_gym.bench.statistics import Interval, bootstrap_interval
from ludic_gym.errors import ConfigError

# All 2^16 signs are tried; beyond that, as many random ones.
EXACT_UP_TO = 16
FLIPS = 1 << EXACT_UP_TO
Measure = Literal["success", "reward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run compared with the first, on the tasks that both finished.

    tasks: number of these; first, second: means over tasks, each task with equal weight.
    difference: second - first; interval: 95%, from resampling tasks; None for a single task.
    p_value: two-sided, of the sign-flip test: the probability of a difference of this size or more
        if each task's two results were exchangeable.
    """

    tasks: int
    first: float
    second: float
    difference: float
    interval: Interval | None
    p_value: float


def compare(
    first: Sequence[Score], second: Sequence[Score], *, measure: Measure = "success", seed: int = 0
) -> Comparison:
    """Compare the runs task by task; samples are averaged.

    Equal rows of data mean equal tasks, and where there are none, equal seeds. Raises ConfigError
    for runs on different data, and if they have no task in common.

    >>> before = [Score(index=i, task=i) for i in range(6)]
    >>> after = [Score(index=i, task=i, success=True) for i in range(6)]
    >>> result = compare(before, after)
    >>> result.difference, result.p_value
    (1.0, 0.03125)
    """
    _require_same_data(first, second)
    finished = [[s for s in scores if s.error is None] for scores in (first, second)]
    # Records of earlier versions name no rows.
    by_row = all(score.row is not None for scores in finished for score in scores)
    means = [_task_means(scores, measure, by_row) for scores in finished]
    shared = sorted(means[0].keys() & means[1].keys())
    if not shared:
        raise ConfigError("the two runs share no task: play both with the same --seed")
    before, after = [[mean[key] for key in shared] for mean in means]
    differences = [b - a for a, b in zip(before, after, strict=True)]
    return Comparison(
        tasks=len(shared),
        first=fmean(before),
        second=fmean(after),
        difference=fmean(differences),
        interval=bootstrap_interval(differences, seed=seed) if len(shared) > 1 else None,
        p_value=sign_flip_p_value(differences, seed=seed),
    )


def _require_same_data(first: Sequence[Score], second: Sequence[Score]) -> None:
    # Names of files may differ, their hashes may not; an episode that was cut off names no data.
    before, after = (
        {s.data: s.data.rpartition("@")[2] for s in run if s.data} for run in (first, second)
    )
    if before and after and set(before.values()) != set(after.values()):
        raise ConfigError(
            f"the runs played different data: {', '.join(before)}, and {', '.join(after)}"
        )


def _task_means(scores: Sequence[Score], measure: Measure, by_row: bool) -> Mapping[int, float]:
    values: dict[int, list[float]] = defaultdict(list)
    for score in scores:
        task = score.row if by_row and score.row is not None else score.task
        values[task].append(score.success if measure == "success" else score.reward)
    # The task is the independent draw, so its samples become one number first.
    return {task: fmean(of_task) for task, of_task in values.items()}


def sign_flip_p_value(differences: Sequence[float], *, seed: int = 0) -> float:
    """Probability of a sum at least as far from 0 under random signs (Fisher 1935).

    Exact for differences of one size, such as successes of single samples (McNemar's test), and for
    up to 16 differences other than 0. Otherwise from 65,536 random flips, the observed one included
    (Phipson and Smyth 2010, arXiv:1603.05766). 1 if all are 0.

    Six tasks, all of them better: 2 of the 64 patterns of signs are as extreme.

    >>> sign_flip_p_value([0.5] * 6), 2 / 64
    (0.03125, 0.03125)
    """
    sizes = np.abs([d for d in differences if d != 0.0])
    if not len(sizes):
        return 1.0
    # Sizes that are all equal make the sum depend on the number of positive signs only.
    if np.ptp(sizes) == 0.0:
        return _binomial_p_value(sum(d > 0 for d in differences), len(sizes))
    # Sums of the same numbers in another order differ by rounding, and must count as equal.
    least = abs(sum(differences)) - 1e-9 * sizes.sum()
    if len(sizes) <= EXACT_UP_TO:
        # Row i holds the bits of i as signs: all 2^n assignments.
        signs = 1 - 2 * ((np.arange(1 << len(sizes))[:, None] >> np.arange(len(sizes))) & 1)
        return float(np.mean(np.abs(signs @ sizes) >= least))
    # The observed signs count as one of the draws: a p-value of 0 would be impossible evidence.
    return (1 + _as_far(sizes, least, np.random.default_rng(seed))) / (1 + FLIPS)


def _as_far(sizes: np.ndarray, least: float, rng: np.random.Generator) -> int:
    """Number of random flips that are at least as far from 0; in pieces, to bound the memory."""
    piece = max(1, 4_000_000 // len(sizes))
    count = 0
    for start in range(0, FLIPS, piece):
        signs = rng.integers(0, 2, size=(min(piece, FLIPS - start), len(sizes)), dtype=np.int8)
        count += int(np.sum(np.abs((1 - 2 * signs) @ sizes) >= least))
    return count


def _binomial_p_value(heads: int, tosses: int) -> float:
    """Two-sided p-value of a fair coin."""
    most = max(heads, tosses - heads)
    tail = sum(math.comb(tosses, k) for k in range(most, tosses + 1))
    return float(min(1.0, 2 * tail / 2**tosses))
