"""Comparisons of runs on the same tasks: of two of them, and boards of any number."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.report import failed_cell
from ludic_gym.bench.result import BenchResult, Score, Tally
from ludic_gym.bench.statistics import (
    Interval,
    bootstrap_interval,
    has_no_spread,
    unseen_share,
)
from ludic_gym.errors import ConfigError
from ludic_gym.records import read_lines

# All 2^16 signs are tried; beyond that, as many random ones.
EXACT_UP_TO = 16
FLIPS = 1 << EXACT_UP_TO
# Share of episodes that the model did not end, beyond which a run has no rank: they may be the
# hardest, or the longest.
MOST_DROPPED = 0.02
Measure = Literal["success", "reward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run compared with the first, on the tasks that both finished.

    tasks: number of these; first, second: means over tasks, each task with equal weight.
    difference: second - first; interval: 95%, from resampling tasks. Of successes that all differ
        by the same amount it is the exact one; None for such rewards, and for a single task.
    unseen: where all tasks have the same difference, the largest share of tasks that may have
        another one, 95%; else None.
    p_value: two-sided, of the sign-flip test: the probability of a difference of this size or more
        if each task's two results were exchangeable.
    """

    tasks: int
    first: float
    second: float
    difference: float
    interval: Interval | None
    unseen: float | None
    p_value: float


def compare(
    first: Sequence[Score], second: Sequence[Score], *, measure: Measure = "success", seed: int = 0
) -> Comparison:
    """Compare the runs task by task; samples are averaged.

    Equal rows of data mean equal tasks, and where there are none, equal seeds. Raises ConfigError
    for runs on different data, if they have no task in common, and for a run of which the
    environment or infrastructure ended more than 2% of the episodes; for successes, also of an
    environment that says nothing of them.

    >>> before = [Score(index=i, task=i) for i in range(6)]
    >>> after = [Score(index=i, task=i, success=True) for i in range(6)]
    >>> result = compare(before, after)
    >>> result.difference, result.p_value
    (1.0, 0.03125)
    """
    if reason := _no_rank_of(first) or _no_rank_of(second):
        raise ConfigError(f"no comparison: {reason}")
    # Names of files may differ, their hashes may not; an episode that was cut off names no data.
    sets = [{s.data: s.data.rpartition("@")[2] for s in run if s.data} for run in (first, second)]
    if all(sets) and set(sets[0].values()) != set(sets[1].values()):
        raise ConfigError(
            f"the runs played different data: {', '.join(sets[0])}, and {', '.join(sets[1])}"
        )
    finished = [[s for s in scores if s.counts] for scores in (first, second)]
    # Records of earlier versions name no rows.
    by_row = all(score.row is not None for scores in finished for score in scores)
    means = []
    for scores in finished:
        values: dict[int, list[float]] = defaultdict(list)
        for score in scores:
            value = score.success if measure == "success" else score.reward
            if value is None:
                raise ConfigError('the environment says nothing of success: use measure="reward"')
            values[score.row if by_row and score.row is not None else score.task].append(value)
        # The task is the independent draw, so its samples become one number first.
        means.append({task: fmean(of_task) for task, of_task in values.items()})
    shared = sorted(means[0].keys() & means[1].keys())
    if not shared:
        raise ConfigError("the two runs share no task: play both with the same --seed")
    before, after = [[mean[key] for key in shared] for mean in means]
    differences = [b - a for a, b in zip(before, after, strict=True)]
    several = len(shared) > 1
    bounds = Interval(-1.0, 1.0) if measure == "success" else None
    return Comparison(
        tasks=len(shared),
        first=fmean(before),
        second=fmean(after),
        difference=fmean(differences),
        interval=bootstrap_interval(differences, bounds=bounds, seed=seed) if several else None,
        unseen=unseen_share(len(shared)) if several and has_no_spread(differences) else None,
        p_value=sign_flip_p_value(differences, seed=seed),
    )


def no_rank(failed: int, total: int) -> str:
    """The reason for which so many failed episodes of all forbid a rank; "" if they do not."""
    if failed <= MOST_DROPPED * total:
        return ""
    return (
        f"{failed} of {total} episodes ({failed / total:.1%}) were ended by the environment or "
        f"infrastructure, more than {MOST_DROPPED:.0%}; play them again"
    )


def _no_rank_of(scores: Sequence[Score]) -> str:
    return no_rank(sum(not score.counts for score in scores), len(scores))


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
    count = len(sizes)
    if not count:
        return 1.0
    # Sizes that are all equal make the sum depend on the number of positive signs only: the
    # two-sided test of a fair coin.
    if np.ptp(sizes) == 0.0:
        heads = sum(d > 0 for d in differences)
        tail = sum(math.comb(count, k) for k in range(max(heads, count - heads), count + 1))
        return float(min(1.0, 2 * tail / 2**count))
    # Sums of the same numbers in another order differ by rounding, and must count as equal.
    least = abs(sum(differences)) - 1e-9 * sizes.sum()
    if count <= EXACT_UP_TO:
        # Row i holds the bits of i as signs: all 2^n assignments.
        signs = 1 - 2 * ((np.arange(1 << count)[:, None] >> np.arange(count)) & 1)
        return float(np.mean(np.abs(signs @ sizes) >= least))
    # In pieces, to bound the memory.
    rng, piece, as_far = np.random.default_rng(seed), max(1, 4_000_000 // count), 0
    for start in range(0, FLIPS, piece):
        signs = rng.integers(0, 2, size=(min(piece, FLIPS - start), count), dtype=np.int8)
        as_far += int(np.sum(np.abs((1 - 2 * signs) @ sizes) >= least))
    # The observed signs count as one of the draws: a p-value of 0 would be impossible evidence.
    return (1 + as_far) / (1 + FLIPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """An environment as it was played; only runs of equal setups are ranked together.

    kwargs: its arguments, as JSON. data: name and hash of its rows, "" without rows.
    """

    env_id: str
    kwargs: str = "{}"
    data: str = ""

    def __str__(self) -> str:
        """The id, its arguments and its rows, as far as there are any."""
        kwargs = [f"{key}={value}" for key, value in json.loads(self.kwargs).items()]
        return ", ".join([" ".join([self.env_id, *kwargs]), *([self.data] if self.data else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run by its name, with its scores by setup. policy: the served model, or the policy."""

    name: str
    policy: str
    scores: Mapping[Setup, Sequence[Score]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run in one environment.

    rank: 1 + the number of ranked runs with a higher mean; None without a finished episode, and for
        one with a reason in `no_rank`.
    difference: of the run from the baseline, on the tasks that both finished; None for the baseline
        itself, and where they cannot be compared.
    """

    rank: int | None
    name: str
    policy: str
    result: BenchResult
    difference: Comparison | None
    no_rank: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All runs of a setup, the best first. baseline: name of the run that is subtracted.

    measure: that which was asked for, or the reward where the environment says nothing of success.
    """

    setup: Setup
    measure: Measure
    baseline: str
    standings: tuple[Standing, ...]

    def __str__(self) -> str:
        """The title of the board."""
        return f"{self.setup}: difference from {self.baseline}"


def boards(
    runs: Sequence[Run], *, measure: Measure = "success", baseline: str | None = None
) -> list[Board]:
    """A board for each setup, in order of appearance.

    baseline: name of a run; None, and where that run did not play, the best one.

    >>> def scores(*successes):
    ...     return [Score(index=i, task=i, success=s) for i, s in enumerate(successes)]
    >>> setup = Setup(env_id="ludic/ConnectFour-v0")
    >>> runs = [Run(name="a", policy="", scores={setup: scores(False, False)}),
    ...         Run(name="b", policy="", scores={setup: scores(True, False)})]
    >>> [(s.rank, s.name) for s in boards(runs)[0].standings]
    [(1, 'b'), (2, 'a')]
    """
    setups = dict.fromkeys(setup for run in runs for setup in run.scores)
    return [_board(setup, runs, measure, baseline) for setup in setups]


def _board(setup: Setup, runs: Sequence[Run], measure: Measure, baseline: str | None) -> Board:
    played = [run for run in runs if setup in run.scores]
    results = {run.name: Tally(run.scores[setup]).result() for run in played}
    if any(score.success is None for run in played for score in run.scores[setup]):
        measure = "reward"
    reasons = {run.name: _no_rank_of(run.scores[setup]) for run in played}
    means = {
        # nan is in no order: it counts as less than every mean, as does one without a rank.
        name: -math.inf
        if not result.episodes or reasons[name]
        else result.success_rate
        if measure == "success"
        else result.mean_reward
        for name, result in results.items()
    }
    played.sort(key=lambda run: -means[run.name])
    first = next((run for run in played if run.name == baseline), played[0])
    standings = []
    for run in played:
        rank = 1 + sum(mean > means[run.name] for mean in means.values())
        difference = None
        # Runs of other seeds, or with too few episodes that the model ended, have no difference.
        with suppress(ConfigError):
            if run is not first:
                difference = compare(first.scores[setup], run.scores[setup], measure=measure)
        standing = Standing(
            rank=rank if means[run.name] > -math.inf else None,
            name=run.name,
            policy=run.policy,
            result=results[run.name],
            difference=difference,
            no_rank=reasons[run.name],
        )
        standings.append(standing)
    return Board(setup=setup, measure=measure, baseline=first.name, standings=tuple(standings))


def board_table(board: Board) -> list[tuple[str, ...]]:
    """The headings, then a row per run; with a column of failed episodes if there are any.

    The mean is the success rate or the reward. "-" is an unknown number; the baseline has no
    difference.
    """
    by_success = board.measure == "success"
    rate = "rate" if by_success else "reward"
    rows: list[tuple[str, ...]] = [
        ("run", "rank", "episodes", rate, "95%", "diff", "95%", "p", "failed")
    ]
    for standing in board.standings:
        result, c = standing.result, standing.difference
        mean = f"{result.mean_reward:.2f}"
        interval = f"{result.reward_interval:.2f}" if result.reward_interval else "-"
        if by_success:
            mean, interval = f"{result.success_rate:.1%}", result.success_interval.in_percent()
        missing = "" if standing.name == board.baseline else "-"
        cells = (
            standing.name,
            "-" if standing.rank is None else str(standing.rank),
            str(result.episodes),
            mean if result.episodes else "-",
            interval if result.episodes else "-",
            missing if c is None else f"{c.difference:+.3f}",
            missing if c is None or c.interval is None else f"{c.interval:+.3f}",
            missing if c is None else f"{c.p_value:.2g}",
            failed_cell(result),
        )
        rows.append(cells)
    # A column of zeros would only take room from the others.
    return rows if any(s.result.errors for s in board.standings) else [row[:-1] for row in rows]


def board_lines(board: Board) -> list[str]:
    """Lines about runs without a rank, and about differences without a spread."""
    lines = [f"{s.name} has no rank: {s.no_rank}" for s in board.standings if s.no_rank]
    pairs = [(s.name, s.difference) for s in board.standings if s.difference is not None]
    return lines + [
        f"{name}: no spread in {c.tasks} tasks; up to {c.unseen:.1%} of all tasks may differ by "
        "another amount (95%)"
        for name, c in pairs
        if c.unseen is not None and c.interval is None
    ]


def run_of(folder: Path, name: str) -> Run:
    """The run in a folder of `ludic bench --out`. Raises ConfigError for another folder."""
    request = read_request(folder)
    scores: dict[Setup, Sequence[Score]] = {}
    for env_id, env in request["envs"].items():
        kwargs = json.dumps(env["kwargs"], sort_keys=True)
        path = transcript_path(folder, env_id)
        # The run may be in progress, or have been killed in the middle of a line.
        lines = read_lines(path, lambda record: Score(**record["score"]), growing=True)
        setup = Setup(env_id=env_id, kwargs=kwargs, data=env.get("data", ""))
        scores[setup] = list(lines) if path.exists() else []
    return Run(name=name, policy=request.get("served") or request["policy"], scores=scores)


def boards_json(board_list: Sequence[Board]) -> list[dict[str, Any]]:
    """The boards as JSON: a list of objects with env, kwargs, data, measure, baseline and runs."""
    return [
        {
            "env": board.setup.env_id,
            "kwargs": json.loads(board.setup.kwargs),
            "data": board.setup.data,
            "measure": board.measure,
            "baseline": board.baseline,
            "runs": [asdict(standing) for standing in board.standings],
        }
        for board in board_list
    ]
