"""How a benchmark looks in a terminal: a progress bar while it runs, a table after it."""

from __future__ import annotations

import math
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

from envs_registry.catalog import CATALOG
from ludic_gym.bench.result import BenchResult
from ludic_gym.bench.statistics import Interval
from ludic_gym.bench.tally import Tally
from ludic_gym.clients.transport import Usage
from ludic_gym.types import Episode

MAX_REASONS = 10
MAX_INDICES = 5


class RateColumn(ProgressColumn):
    """Episodes per second."""

    def render(self, task: Task) -> Text:
        """The rate of late, worked out only when the bar is drawn."""
        return Text(f"{task.finished_speed or task.speed or 0.0:,.0f}/s")


@contextmanager
def bench_progress(
    label: str, tally: Tally, *, total: int, done: int = 0, spent: Callable[[], str] = str
) -> Iterator[Callable[[Episode], None]]:
    """A function to call with every finished episode, behind a bar on stderr.

    tally: where the success rate is read. done: episodes that need not be played again.
    spent: tells tokens and cost so far.
    """
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        TextColumn("success {task.fields[success]} {task.fields[spent]}", markup=False),
        console=Console(stderr=True),
    )
    with bar:
        row = bar.add_task(label, total=total, completed=done, success="-", spent="")

        def show(episode: Episode | None, advance: int = 1) -> None:
            rate = _percent(tally.success_rate)
            bar.update(row, advance=advance, success=rate, spent=spent())

        show(None, 0)

        yield show


def spent_words(usage: Usage, price: tuple[float, float] | None) -> str:
    """The tokens that a server has counted, and what they cost.

    price: of a million tokens of prompts, and of completions.
    """
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    if price is None:
        return tokens
    cost = (usage.prompt_tokens * price[0] + usage.completion_tokens * price[1]) / 1e6
    return f"{tokens}, cost {cost:.2f}"


def result_table(results: Mapping[str, BenchResult], *, policy: str) -> Table:
    """One line per env; 80 columns hold the names of the catalogue."""
    table = Table(
        title=Text(f"policy: {policy}"), title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("env", overflow="fold")
    failed = any(result.errors for result in results.values())
    for heading in ("successes", "rate", "95%", "reward", "95%", "random", *["failed"] * failed):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, result in results.items():
        words = (*cells(result), random_cell(label), str(len(result.errors)))
        table.add_row(
            Text(label + sample_mark(result)), *map(Text, words[: len(table.columns) - 1])
        )
    return table


def sample_mark(result: BenchResult) -> str:
    """What tells a score on the bundled sample from one on the data set itself."""
    return " (sample)" if "sample@" in result.data else ""


def cells(result: BenchResult) -> tuple[str, ...]:
    """The table's words for a result; "-" where nothing was measured."""
    measured = result.episodes > 0
    return (
        f"{result.successes}/{result.episodes}",
        _percent(result.success_rate),
        _interval(result.success_interval, scale=100, digits=1) if measured else "-",
        f"{result.mean_reward:.2f}" if measured else "-",
        _interval(result.reward_interval, scale=1, digits=2) if result.reward_interval else "-",
    )


def random_cell(env_id: str) -> str:
    """How often random play succeeds by the catalogue, with the env's own kwargs."""
    known = {entry.id: entry.random_success for entry in CATALOG}
    return _percent(known.get(env_id, math.nan))


def pass_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """pass@k and pass^k for one sample, for all, and for the powers of two between."""
    return [
        f"{label}: pass@k {_by_k(result.pass_at_k)}; pass^k {_by_k(result.pass_hat_k)}"
        for label, result in results.items()
        if result.pass_at_k
    ]


def _by_k(values: Sequence[float]) -> str:
    last = len(values)
    shown = sorted({last} | {1 << i for i in range(last.bit_length()) if 1 << i <= last})
    return ", ".join(f"{values[k - 1]:.1%} at {k}" for k in shown)


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


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"
