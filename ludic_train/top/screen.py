"""A sample as tables on a terminal. Names come from whoever reports: they are shown as text."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ludic_train.queues.base import QueueStatus
from ludic_train.top.sample import Rate, Sample

BAR = 40


def screen(sample: Sample, title: str) -> Group:
    """Queue, actors and lags, one below the other."""
    return Group(Text(title, style="bold"), _queue(sample), _actors(sample), _lags(sample.status))


def _queue(sample: Sample) -> Table:
    status, trainer = sample.status, sample.status.trainer
    table = Table("waiting", "read ahead", "held", "trained", "groups/s", title="queue")
    for name in ("stale", "duplicate", "filtered", "dropped", "dead"):
        table.add_column(name)
    table.add_column("trainer")
    counts = [status.counts.get(n, 0) for n in ("stale", "duplicate", "filtered", "dropped")]
    dead = status.counts.get("dead", 0)
    table.add_row(
        str(status.queued - status.pending),
        str(status.pending),
        str(status.held),
        str(status.counts.get("trained", 0)),
        f"{sample.trained_per_s:.1f}",
        *map(str, counts),
        Text(str(dead), style="red" if dead else ""),
        "none yet" if trainer is None else f"version {trainer.version}",
    )
    return table


def _actors(sample: Sample) -> Table:
    table = Table("actor", "version", "playing", "pushed", "unused", "groups/s", "tokens/s")
    table.title = f"{len(sample.status.actors)} actors, {sample.tokens_per_s:.0f} tokens/s"
    for report in sample.status.actors:
        rate = sample.actors.get(report.name, Rate())
        table.add_row(
            Text(report.name),
            str(report.version),
            str(report.running),
            str(report.groups),
            str(report.unused),
            f"{rate.groups:.1f}",
            f"{rate.tokens:.0f}",
        )
    return table


def _lags(status: QueueStatus) -> Table:
    table = Table("lag", "groups", "", title="updates between sampling and training")
    most = max(status.lags.values(), default=1)
    for lag, groups in status.lags.items():
        table.add_row(str(lag), str(groups), "█" * max(1, round(BAR * groups / most)))
    return table
