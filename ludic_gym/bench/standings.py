"""Standings: runs on the same environment, the best first, with paired differences."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ludic_gym.bench.comparison import Comparison, Measure, compare
from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.result import BenchResult, Score
from ludic_gym.bench.statistics import Interval
from ludic_gym.bench.tally import Tally
from ludic_gym.errors import ConfigError
from ludic_gym.records import read_lines


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

    rank: 1 + the number of runs with a higher mean; None without a finished episode.
    difference: of the run from the baseline, on the tasks that both finished; None for the baseline
        itself, and without a common task.
    """

    rank: int | None
    name: str
    policy: str
    result: BenchResult
    difference: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All runs of a setup, the best first. baseline: name of the run that is subtracted."""

    setup: Setup
    measure: Measure
    baseline: str
    standings: tuple[Standing, ...]


def boards(
    runs: Sequence[Run], *, measure: Measure = "success", baseline: str | None = None
) -> list[Board]:
    """A board for each setup, in order of appearance.

    baseline: name of a run; None, and where that run did not play, the best one.

    >>> def scores(*successes):
    ...     return [Score(index=i, task=i, success=s) for i, s in enumerate(successes)]
    >>> setup = Setup(env_id="ludic/Nim-v0")
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
    means = {name: mean_of(result, measure) for name, result in results.items()}
    # nan is in no order: it counts as less than every mean.
    means = {name: -math.inf if math.isnan(mean) else mean for name, mean in means.items()}
    played.sort(key=lambda run: -means[run.name])
    first = next((run for run in played if run.name == baseline), played[0])
    return Board(
        setup=setup,
        measure=measure,
        baseline=first.name,
        standings=tuple(
            Standing(
                rank=None
                if not results[run.name].episodes
                else 1 + sum(mean > means[run.name] for mean in means.values()),
                name=run.name,
                policy=run.policy,
                result=results[run.name],
                difference=None if run is first else _difference(first, run, setup, measure),
            )
            for run in played
        ),
    )


def _difference(first: Run, second: Run, setup: Setup, measure: Measure) -> Comparison | None:
    try:
        return compare(first.scores[setup], second.scores[setup], measure=measure)
    # Of other seeds.
    except ConfigError:
        return None


def board_table(board: Board) -> list[tuple[str, ...]]:
    """The headings, then a row per run; with a column of failed episodes if there are any.

    The mean is the success rate or the reward. "-" is an unknown number; the baseline has no
    difference.
    """
    rate = "rate" if board.measure == "success" else "reward"
    rows: list[tuple[str, ...]] = [
        ("run", "rank", "episodes", rate, "95%", "diff", "95%", "p", "failed"),
        *(_cells(board, standing) for standing in board.standings),
    ]
    # A column of zeros would only take room from the others.
    return rows if any(s.result.errors for s in board.standings) else [row[:-1] for row in rows]


def _cells(board: Board, standing: Standing) -> tuple[str, ...]:
    result, c = standing.result, standing.difference
    interval = interval_of(result, board.measure)
    scale, sign = (100, "%") if board.measure == "success" else (1, "")
    digits = 1 if sign else 2
    mean = mean_of(result, board.measure)
    missing = "" if standing.name == board.baseline else "-"
    return (
        standing.name,
        "-" if standing.rank is None else str(standing.rank),
        str(result.episodes),
        "-" if math.isnan(mean) else f"{scale * mean:.{digits}f}{sign}",
        "-"
        if interval is None
        else f"[{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]",
        missing if c is None else f"{c.difference:+.3f}",
        missing
        if c is None or c.interval is None
        else f"[{c.interval.low:+.3f}, {c.interval.high:+.3f}]",
        missing if c is None else f"{c.p_value:.2g}",
        str(len(result.errors)),
    )


def mean_of(result: BenchResult, measure: Measure) -> float:
    """The compared mean of a result; nan without a finished episode."""
    return result.success_rate if measure == "success" else result.mean_reward


def interval_of(result: BenchResult, measure: Measure) -> Interval | None:
    """The 95% interval of `mean_of`; None where there is none."""
    if not result.episodes:
        return None
    return result.success_interval if measure == "success" else result.reward_interval


def run_of(folder: Path, name: str) -> Run:
    """The run in a folder of `ludic bench --out`. Raises ConfigError for another folder."""
    request = read_request(folder)
    scores = {
        Setup(
            env_id=env_id,
            kwargs=json.dumps(env["kwargs"], sort_keys=True),
            data=env.get("data", ""),
        ): _scores(transcript_path(folder, env_id))
        for env_id, env in request["envs"].items()
    }
    return Run(name=name, policy=request.get("served") or request["policy"], scores=scores)


def _scores(path: Path) -> list[Score]:
    # The run may be in progress, or have been killed in the middle of a line.
    lines = read_lines(path, lambda record: Score(**record["score"]), growing=True)
    return list(lines) if path.exists() else []


def boards_json(found: Sequence[Board]) -> list[dict[str, Any]]:
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
        for board in found
    ]
