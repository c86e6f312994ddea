"""The curves of a run as a PNG, drawn without a display."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ludic_train.errors import MetricError
from ludic_train.loggers.loggers import read_metrics

COLOR = "#2a6f97"
MOST_COLUMNS = 3


def plot_curve(
    jsonl_path: Path | str, png_path: Path | str, metrics: Sequence[str], *, title: str = ""
) -> Path:
    """Draw one panel per metric over the updates, and return the PNG's path.

        plot_curve("runs/a/metrics.jsonl", "runs/a/curve.png", ["reward", "eval/test/success"])

    jsonl_path: of a JSONLLogger. png_path: replaced if it exists. metrics: names, in the order of
        the panels. title: above all panels.
    Each panel shows the raw points, and a running mean where there are many. Raises MetricError
    for a metric of which the file has no number, or where none is named.
    """
    if not metrics:
        raise MetricError("no metric to draw; name at least one")
    records = read_metrics(jsonl_path)
    series = {}
    for name in metrics:
        # Evaluations come every few updates, so that most records lack their metrics.
        points = [(r["update"], r[name]) for r in records if math.isfinite(r.get(name, math.nan))]
        if not points:
            names = ", ".join(sorted({key for record in records for key in record}))
            raise MetricError(f"{jsonl_path} has no number for {name!r}; it has {names}")
        series[name] = points
    # Four as a square, and not three and a single one.
    columns = 2 if len(series) == 4 else min(len(series), MOST_COLUMNS)
    rows = -(-len(series) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows + 0.3 * bool(title)), layout="constrained")
    # Without pyplot, whose global state and choice of a display no library should touch.
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold")
    for place, (name, points) in enumerate(series.items(), start=1):
        _draw(figure.add_subplot(rows, columns, place), name, points)
    figure.savefig(png_path, dpi=130)
    return Path(png_path)


def running_mean(values: Sequence[float], span: int) -> list[float]:
    """Mean of the last `span` values at each place, of fewer at the beginning.

    >>> running_mean([1.0, 3.0, 5.0], span=2)
    [1.0, 2.0, 4.0]
    """
    # Each window anew: a sum that is carried along would gather rounding errors.
    windows = (values[max(0, i + 1 - span) : i + 1] for i in range(len(values)))
    return [math.fsum(window) / len(window) for window in windows]


def _draw(axes: Axes, name: str, points: Sequence[tuple[float, float]]) -> None:
    updates, numbers = (list(column) for column in zip(*points, strict=True))
    # Raw points of many updates hide the trend.
    many = len(points) >= 40
    if many:
        axes.plot(updates, numbers, color=COLOR, alpha=0.25, linewidth=0.8)
        numbers = running_mean(numbers, len(points) // 20)
    marker = "" if many else "o"
    axes.plot(updates, numbers, color=COLOR, linewidth=1.8, marker=marker, markersize=3)
    axes.annotate(
        f"{numbers[-1]:.3g}",
        (updates[-1], numbers[-1]),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=COLOR,
        annotation_clip=False,
    )
    axes.set_title(name, fontsize=10, loc="left")
    axes.set_xlabel("update", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02)
