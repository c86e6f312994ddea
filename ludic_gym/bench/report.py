"""The terminal: a progress bar, the cells of the result table, and the lines below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
from rich.text import Text

from envs_registry.catalog import CATALOG
from ludic_gym.bench.result import REFUSALS, BenchResult, Price
from ludic_gym.bench.statistics import Interval

if TYPE_CHECKING:
    from ludic_gym.clients.transport import Usage

MAX_REASONS = 10
MAX_INDICES = 5
HEADINGS = ("env", "successes", "rate", "95%", "reward", "95%", "random")


def spent_text(usage: Usage, price: Price | None) -> str:
    """The tokens that a server has counted, and their cost if there is a price."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    tokens = f"{usage.prompt_tokens:,}{cached} + {usage.completion_tokens:,} tokens"
    if price is None:
        return tokens
    cost = price.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    return f"{tokens}, cost {cost:.2f}"


def result_table(
    results: Mapping[str, BenchResult], env_kwargs: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """The headings, then a row per env; with a column of failures if there are any.

    env_kwargs: arguments that the envs were made with. The column `random` has the success rate of
        random play in the catalogue, which is known for the default ones alone.
    """
    random = {} if env_kwargs else {entry.id: entry.random_success for entry in CATALOG}
    rows: list[tuple[str, ...]] = [(*HEADINGS, "failed")]
    for label, result in results.items():
        # Scores on the bundled sample are marked: it is not the data set itself.
        mark = " (sample)" if "sample@" in result.data else ""
        by_chance = percent(random.get(label, math.nan))
        rows.append((label + mark, *_cells(result), by_chance, str(len(result.errors))))
    # A column of zeros would only take room from the others.
    return rows if any(result.errors for result in results.values()) else [r[:-1] for r in rows]


def _cells(result: BenchResult) -> tuple[str, ...]:
    """The cells of a result; "-" where nothing was measured."""
    measured = result.episodes > 0
    return (
        f"{result.successes}/{result.episodes}",
        percent(result.success_rate),
        _interval(result.success_interval, scale=100, digits=1) if measured else "-",
        f"{result.mean_reward:.2f}" if measured else "-",
        _interval(result.reward_interval, scale=1, digits=2) if result.reward_interval else "-",
    )


def pass_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """pass@k and pass^k for one sample, for all, and for the powers of two between."""
    return [
        f"{label}: pass@k {_by_k(result.pass_at_k)}; pass^k {_by_k(result.pass_hat_k)}"
        for label, result in results.items()
        if result.pass_at_k
    ]


def _by_k(values: Sequence[float]) -> str:
    last = len(values)
    # Every k would make a long line; between powers of two the estimates change little.
    counts = sorted({last} | {1 << i for i in range(last.bit_length()) if 1 << i <= last})
    return ", ".join(f"{values[k - 1]:.1%} at {k}" for k in counts)


def error_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """Lines about failed episodes, one line per reason, ten reasons per env."""
    return [line for label, result in results.items() for line in _reasons(label, result.errors)]


def stopped_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """A line per env whose run was stopped by equal errors."""
    return [
        f"{label}: stopped after the same error {REFUSALS} times in a row"
        for label, result in results.items()
        if result.stopped
    ]


def _reasons(label: str, errors: Sequence[tuple[int, str]]) -> list[str]:
    # By reason, because a server that is down fails all episodes with the same text.
    indices: dict[str, list[int]] = {}
    for index, reason in errors:
        indices.setdefault(reason, []).append(index)
    lines = [f"{label}, episode {_listed(where)}: {why}" for why, where in indices.items()]
    rest = len(lines) - MAX_REASONS
    return lines if rest <= 0 else [*lines[:MAX_REASONS], f"{label}: {rest} more reasons"]


def _listed(indices: Sequence[int]) -> str:
    first = ", ".join(map(str, indices[:MAX_INDICES]))
    rest = len(indices) - MAX_INDICES
    return first if rest <= 0 else f"{first} and {rest} more"


def metric_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """A line per env that has further figures, such as F1."""
    return [
        f"{label}: {', '.join(f'{name} {percent(v)}' for name, v in result.metrics.items())}"
        for label, result in results.items()
        if result.metrics
    ]


def model_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """A line per env that a model behind a server has played: the model, its tokens and cost."""
    return [
        f"{label}: model {result.model}{_spent(result)}"
        for label, result in results.items()
        if result.model
    ]


def _spent(result: BenchResult) -> str:
    if result.prompt_tokens is None or result.completion_tokens is None:
        return ""
    tokens = f", {result.prompt_tokens:,} + {result.completion_tokens:,} tokens"
    return tokens if result.cost is None else f"{tokens}, cost {result.cost:.4f}"


def cut_off_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """Lines about envs with replies that hit the token limit, which were graded unfinished."""
    return [
        f"{label}: {result.cut_off} replies ran into the token limit; see --max-tokens"
        for label, result in results.items()
        if result.cut_off
    ]


def _interval(interval: Interval, *, scale: int, digits: int) -> str:
    return f"[{scale * interval.low:.{digits}f}, {scale * interval.high:.{digits}f}]"


def percent(share: float) -> str:
    """A share in percent; "-" for nan.

    >>> percent(0.625), percent(float("nan"))
    ('62.5%', '-')
    """
    return "-" if math.isnan(share) else f"{share:.1%}"


class RateColumn(ProgressColumn):
    """Episodes per second."""

    def render(self, task: Task) -> Text:
        """The recent rate, computed only when the bar is drawn."""
        return Text(f"{task.finished_speed or task.speed or 0.0:,.0f}/s")


@contextmanager
def progress_bar(
    label: str, *, total: int, done: int = 0, note: Callable[[], str] = str
) -> Iterator[Callable[[object], None]]:
    """A function to call with every finished episode.

    label: the text before the bar. total: number of episodes.
    done: episodes that need not be played again. note: the text behind the bar.
    """
    bar = Progress(
        # Ids may have brackets, which Rich would read as markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        # Not standard output, which holds the results and may be piped.
        console=Console(stderr=True),
    )
    with bar:
        row = bar.add_task(label, total=total, completed=done, note=note())
        yield lambda episode: bar.update(row, advance=1, note=note())
