"""Tally: running totals of scores, with a few bytes per episode."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from statistics import fmean

import numpy as np

from ludic_gym.bench.result import BenchResult, Score
from ludic_gym.bench.statistics import (
    bootstrap_interval,
    clustered_wilson_interval,
    pass_at_k,
    pass_hat_k,
)


class Tally:
    """Totals of scores, which may be added in any order and are not kept."""

    def __init__(self, scores: Iterable[Score] = ()) -> None:
        # Arrays of machine numbers take 25 bytes per episode, Score objects ten times as much.
        self._index, self._task = array("q"), array("q")
        self._success, self._reward = array("b"), array("d")
        self._outcomes: Counter[str] = Counter()
        self._data: set[str] = set()
        self._turns = self._cut_off = self._successes = 0
        self._tokens: int | None = 0
        self._errors: list[tuple[int, str]] = []
        for score in scores:
            self.add(score)

    def add(self, score: Score) -> None:
        """Count one more episode."""
        if score.error is not None:
            self._errors.append((score.index, score.error))
            return
        self._index.append(score.index)
        self._task.append(score.task)
        self._success.append(score.success)
        self._reward.append(score.reward)
        self._successes += score.success
        self._outcomes[score.outcome] += 1
        self._data.add(score.data)
        self._turns += score.turns
        self._cut_off += score.cut_off
        if self._tokens is not None:
            tokens = score.completion_tokens
            self._tokens = None if tokens is None else self._tokens + tokens

    @property
    def success_rate(self) -> float:
        """The share of successes so far, nan before the first episode."""
        return self._successes / len(self._index) if self._index else math.nan

    def result(self) -> BenchResult:
        """The result, independent of the order of the scores."""
        rewards, wins, trials, totals = self._by_task()
        return BenchResult(
            episodes=len(self._index),
            successes=self._successes,
            success_rate=self.success_rate,
            success_interval=clustered_wilson_interval(wins, trials),
            mean_reward=fmean(rewards) if rewards else math.nan,
            reward_interval=bootstrap_interval(totals, trials) if len(trials) > 1 else None,
            tasks=len(trials),
            pass_at_k=_over_tasks(pass_at_k, wins, trials),
            pass_hat_k=_over_tasks(pass_hat_k, wins, trials),
            outcomes=dict(sorted(self._outcomes.items(), key=lambda item: (-item[1], item[0]))),
            turns=self._turns,
            completion_tokens=self._tokens,
            cut_off=self._cut_off,
            data=", ".join(sorted(filter(None, self._data))),
            errors=tuple(sorted(self._errors)),
        )

    def _by_task(self) -> tuple[list[float], list[int], list[int], list[float]]:
        """Every reward; for every task its successes, its episodes and the sum of its rewards."""
        # Sums of floats depend on the order, and episodes finish in any order.
        order = np.argsort(np.array(self._index), kind="stable")
        rewards, success = np.array(self._reward)[order], np.array(self._success)[order]
        _, task = np.unique(np.array(self._task)[order], return_inverse=True)
        trials = np.bincount(task)
        wins = np.bincount(task, weights=success).astype(int)
        totals = np.bincount(task, weights=rewards)
        return rewards.tolist(), wins.tolist(), trials.tolist(), totals.tolist()


def _over_tasks(
    estimate: Callable[[int, int, int], float], wins: list[int], trials: list[int]
) -> tuple[float, ...]:
    """The estimate for k = 1, 2 ... samples, averaged over tasks; () if a task has but one."""
    most = min(trials, default=0)
    if most < 2:
        return ()
    pairs = Counter(zip(wins, trials, strict=True))
    return tuple(
        math.fsum(count * estimate(*pair, k) for pair, count in pairs.items()) / len(trials)
        for k in range(1, most + 1)
    )
