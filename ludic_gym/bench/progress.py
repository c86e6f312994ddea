"""A progress bar for episodes, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from rich.text import Text


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
