"""Numbers of a run in a terminal, as live panels, or as plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from rich.box import SQUARE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ludic_train.loggers.loggers import IMITATION

BARS = "▁▂▃▄▅▆▇█"
MAIN = frozenset({"reward", "success", "level", "entropy", "nll"})
MAIN |= {"grad_norm", "lr", "seconds/update"}
# Between two plain lines of a long run.
SECONDS = 30.0


class ConsoleLogger:
    """Live panels of the latest numbers in a terminal, by family; plain lines anywhere else.

    A family is what names have before the slash, as in seconds/update and seconds/next_batch.
    Updates that imitate have the word beside their number.

        logger = ConsoleLogger(1_000, headline="success")
        await trainer.train(1_000, on_update=lambda update, m: logger.log(update, values(m)))
        logger.close()

    total: updates that the run will make, for the progress bar and the time left.
    headline: the metric whose history is drawn.
    every: in plain mode, updates between two lines; None prints one every 30 seconds. The first and
        the last update are always printed.
    console: of the terminal if left out.
    clock: seconds that never go back, for the time that is left.
    """

    def __init__(
        self,
        total: int,
        *,
        title: str = "training",
        headline: str = "reward",
        every: int | None = 10,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.title, self.headline, self.every = total, title, headline, every
        self.console = console or Console()
        self._clock = clock
        self._started: tuple[int, float] | None = None
        self._printed = -math.inf
        self._update = 0
        self._imitates = False
        self._latest: dict[str, float] = {}
        self._history: list[float] = []
        self._live: Live | None = None

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Show the numbers; names that are not among them keep their last value.

        In a terminal, each call draws once, a few ms.
        """
        # Time spent before the first update is set-up, and says nothing about the rest.
        self._started = self._started or (update, self._clock())
        self._update = update
        # Of updates; an evaluation is of the stage before it.
        self._imitates = bool(metrics.get(IMITATION, self._imitates))
        metrics = {name: value for name, value in metrics.items() if name != IMITATION}
        self._latest |= metrics
        if self.headline in metrics:
            self._history.append(metrics[self.headline])
        if self.console.is_terminal:
            if self._live is None:
                # Drawn at each update: a refreshing thread would print into the caller's output.
                self._live = Live(console=self.console, auto_refresh=False)
                self._live.start()
            self._live.update(self._panel(), refresh=True)
            return
        due = update in (self._started[0], self.total)
        if self.every is not None:
            due = due or update % self.every == 0
        else:
            due = due or self._clock() - self._printed >= SECONDS
            # In a file of a long run, the numbers that tell how it goes; metrics.jsonl has all.
            shown = ("eval/", "level/")
            metrics = {n: v for n, v in metrics.items() if n in MAIN or n.startswith(shown)}
        if due:
            self._printed = self._clock()
            numbers = "  ".join(f"{name} {readable(value)}" for name, value in metrics.items())
            line = f"{self.title} {self._progress()}  {numbers}"
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        """Leave the last panel on the screen, and give the cursor back."""
        if self._live:
            self._live.stop()
            self._live = None

    def seconds_left(self) -> float | None:
        """Estimated from the mean time of the updates seen so far; None before the second one."""
        if self._started is None or self._update <= self._started[0]:
            return None
        first, since = self._started
        each = (self._clock() - since) / (self._update - first)
        return each * max(self.total - self._update, 0)

    def _progress(self) -> str:
        left = self.seconds_left()
        text = f"  {timedelta(seconds=round(left))} left" if left else ""
        return f"{self._update}/{self.total}{' imitation' if self._imitates else ''}{text}"

    def _panel(self) -> RenderableType:
        # Lines of more than 100 columns are hard to read, and below 20 nothing fits.
        width = max(min(self.console.width, 100) - 4, 20)
        chart_width = max(width - len(self.headline) - 11, 5)
        latest = self._history[-1] if self._history else math.nan
        chart = Text.assemble(
            (f"{self.headline} ", "bold"),
            (sparkline(self._history, chart_width), "green"),
            (f" {readable(latest)}", "bold green"),
        )
        bar = ProgressBar(self.total, self._update, width=width, complete_style="green")
        # By what names have before the slash, without it; "" for no slash.
        families: dict[str, dict[str, float]] = {}
        for name, value in self._latest.items():
            if name != self.headline:
                family, slash, rest = name.partition("/")
                families.setdefault(family if slash else "", {})[rest if slash else name] = value
        panels = [_family_panel(*family) for family in families.items()]
        # The families in two columns, or in one where the terminal is narrow.
        columns = 2 if width >= 70 else 1
        table = Table.grid(padding=(0, 1), expand=True)
        for _ in range(columns):
            table.add_column(ratio=1)
        # Not one grid row per pair of panels, because a short panel would leave a hole.
        table.add_row(*(Group(*panels[column::columns]) for column in range(columns)))
        body = Group(chart, table, bar)
        heading = Text(f"{self.title}  {self._progress()}")
        return Panel(body, title=heading, title_align="left", width=width + 4)


def _family_panel(title: str, numbers: Mapping[str, float]) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in numbers.items():
        table.add_row(Text(name, "dim"), Text(readable(value)))
    heading = Text(title, "bold") if title else None
    return Panel(table, title=heading, title_align="left", box=SQUARE, border_style="dim")


def sparkline(values: Sequence[float], width: int) -> str:
    """`values` as at most `width` bars from the lowest to the highest, each the mean of its share.

    What is not finite is drawn as "?".

        sparkline([0, 1, 2, 3], width=4)    # "▁▃▆█"
    """
    # Whole-number edges, so that each value is in exactly one share.
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)] if count else []
    means = [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # The lowest bar where all are equal.
    span, top = (high - low) or 1.0, len(BARS) - 1
    return "".join(
        BARS[round((mean - low) / span * top)] if math.isfinite(mean) else "?" for mean in means
    )


def readable(value: float) -> str:
    """Four significant digits, without an exponent where that is short.

    readable(0.123456)     # "0.1235"
    readable(1_234_567)    # "1,234,567"
    readable(1e-6)         # "1.00e-06"
    """
    if value == 0 or (1e-3 <= abs(value) < 1e4):
        return f"{value:.4g}"
    if 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.2e}"
