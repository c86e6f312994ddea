"""The curves of a run as a PNG, drawn without a display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ludic_train.loggers.loggers import imitated_until

COLOR, SHADE = "#2a6f97", "#8a8f98"


def plot_curves(
    records: Sequence[Mapping[str, float]], path: Path, names: Sequence[str], *, title: str
) -> None:
    """Draw one panel per metric over the updates; a running mean where there are many.

    The updates that imitated are shaded.

    records: of `read_metrics`, with a number for each name somewhere.
    """
    # Without pyplot, whose global state and choice of a display no library should touch.
    figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    imitated = imitated_until(records)
    for place, name in enumerate(names, start=1):
        # Evaluations come every few updates, so that most records lack their metrics.
        points = [(r["update"], r[name]) for r in records if math.isfinite(r.get(name, math.nan))]
        updates, numbers = np.array(points).T
        axes = figure.add_subplot(1, len(names), place)
        if imitated:
            axes.axvspan(0, imitated, color=SHADE, alpha=0.15, linewidth=0)
            axes.annotate(
                "imitation",
                (0, 1),
                xycoords=("data", "axes fraction"),
                fontsize=8,
                va="top",
                color=SHADE,
            )
        # Raw points of many updates hide the trend.
        if (span := len(points) // 20) > 1:
            axes.plot(updates, numbers, color=COLOR, alpha=0.25, linewidth=0.8)
            updates = updates[span - 1 :]
            numbers = np.convolve(numbers, np.full(span, 1 / span), "valid")
        axes.plot(updates, numbers, color=COLOR, linewidth=1.8)
        axes.set_title(f"{name}: {numbers[-1]:.3g}", fontsize=10, loc="left")
        axes.set_xlabel("update", fontsize=9)
        axes.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(path, dpi=130)
