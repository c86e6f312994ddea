"""Rates of works that take seconds each, measured in turns so that all see the same machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch

from harness.rates import Rate, rates_of


def rates_in_turns(
    works: Sequence[Callable[[], int]],
    repeats: int,
    *,
    warm_up: bool = True,
    enough_s: float = math.inf,
) -> list[Rate]:
    """Units per second of each work, which returns their number, from up to `repeats` rounds.

    works: the first one is ours.
    warm_up: the first round does not count. enough_s: no round begins after so many seconds of
        rounds that count.
    """
    amounts = [work() for work in works] if warm_up else [0] * len(works)
    seconds: list[list[float]] = [[] for _ in works]
    while len(seconds[0]) < repeats and sum(map(sum, seconds)) <= enough_s:
        for i, work in enumerate(works):
            started = clock()
            amounts[i] = work()
            seconds[i].append(clock() - started)
    return rates_of([[n / s for s in spent] for n, spent in zip(amounts, seconds, strict=True)])


def clock() -> float:
    """CPU seconds of this process, or with several threads seconds of the wall."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()
