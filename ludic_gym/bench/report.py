"""How a benchmark looks in a terminal: a progress bar while it runs, a table after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ludic_gym.bench.result import BenchResult, score
from ludic_gym.bench.statistics import Interval
from ludic_gym.types import Episode

MAX_REASONS = 10
MAX_INDICES = 5


class RateColumn(ProgressColumn):
    """Episodes per second."""

    def render(self, task: Task) -> Text:
        """The rate of late, worked out only when the bar is drawn."""
        return Text(f"{task.finished_speed or task.speed or 0.0:,.0f}/s")


@contextmanager
def bench_progress(label: str, *, total: int) -> Iterator[Callable[[Episode], None]]:
    """A function to call with every finished episode, behind a bar on stderr."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        TextColumn("success {task.fields[success]}", markup=False),
        console=Console(stderr=True),
    )
    seen: Counter[str] = Counter()
    with bar:
        row = bar.add_task(label, total=total, success="-")

        def show(episode: Episode) -> None:
            result = score(episode)
            seen["ended"] += result.error is None
            seen["successes"] += result.success
            share = f"{seen['successes'] / seen['ended']:.1%}" if seen["ended"] else "-"
            bar.update(row, advance=1, success=share)

        yield show


def result_table(results: Mapping[str, BenchResult], *, policy: str) -> Table:
    """One line per env; 80 columns hold the names of the catalogue."""
    table = Table(
        title=Text(f"policy: {policy}"), title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("env", overflow="fold")
    for heading in ("successes", "rate", "95%", "reward", "95%", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, result in results.items():
        table.add_row(Text(label), *cells(result))
    return table


def cells(result: BenchResult) -> tuple[Text, ...]:
    """The table's words for a result; "-" where nothing was measured."""
    measured = result.episodes > 0
    words = (
        f"{result.successes}/{result.episodes}",
        f"{result.success_rate:.1%}" if measured else "-",
        _interval(result.success_interval, scale=100, digits=1) if measured else "-",
        f"{result.mean_reward:.2f}" if measured else "-",
        _interval(result.reward_interval, scale=1, digits=2) if result.reward_interval else "-",
        str(len(result.errors)),
    )
    return tuple(Text(word) for word in words)


def error_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """The failed episodes, those with the same reason on one line; ten reasons for every env."""
    return [line for label, result in results.items() for line in _reasons(label, result.errors)]


def _reasons(label: str, errors: Sequence[tuple[int, str]]) -> list[str]:
    indices: dict[str, list[int]] = {}
    for index, reason in errors:
        indices.setdefault(reason, []).append(index)
    lines = [f"{label}, episode {_listed(where)}: {why}" for why, where in indices.items()]
    rest = len(lines) - MAX_REASONS
    return lines if rest <= 0 else [*lines[:MAX_REASONS], f"{label}: {rest} more reasons"]


def _listed(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:MAX_INDICES]))
    rest = len(indices) - MAX_INDICES
    return shown if rest <= 0 else f"{shown} and {rest} more"


def cut_off_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """Which envs saw replies that hit the limit, and so may have been graded unfairly."""
    return [
        f"{label}: {result.cut_off} replies ran into the token limit; see --max-tokens"
        for label, result in results.items()
        if result.cut_off
    ]


def _interval(interval: Interval, *, scale: int, digits: int) -> str:
    return f"[{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]"
