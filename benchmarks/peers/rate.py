"""Rates of environments; needs nothing but Python, so that peers can use it."""

from __future__ import annotations

import time
from collections.abc import Iterator

REPEATS = 5
# Does a batch of the work whenever it is asked, and yields how many units that was.
Work = Iterator[int]


def busy_share(work: Work, seconds: float) -> float:
    """CPU-seconds of this process per second of work: near 0 where others do it."""
    next(work)
    wall, spent = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        next(work)
    return (time.process_time() - spent) / (time.perf_counter() - wall)


def best_rate(work: Work, seconds: float) -> float:
    """Units per CPU-second of this process in the best of the repeats, each of that many."""
    next(work)
    rates = []
    for _ in range(REPEATS):
        start, units, spent = time.process_time(), 0, 0.0
        while spent < seconds:
            units += next(work)
            spent = time.process_time() - start
        rates.append(units / spent)
    return max(rates)
