"""A sample as tables on a terminal. Names come from actors and servers: they are plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ludic_train.cluster.queues.base import QueueStatus
from ludic_train.cluster.status.sample import Load, Rate, Sample
from ludic_train.sources.levels import levels_from_text

BAR = 40


def screen(sample: Sample, title: str) -> Group:
    """Queue, actors, servers if there are any, and lags, one below the other.

    title: the address of the queue, without a password.
    The result is for a `rich` console, once or in a live display.
    """
    parts: list[RenderableType] = [Text(title, style="bold"), _queue(sample), _actors(sample)]
    if sample.servers:
        parts.append(_servers(sample.servers))
    return Group(*parts, _lags(sample.status))


def _queue(sample: Sample) -> Table:
    """Groups by where they are, or how they ended; dead letters in red if there are any."""
    status, trainer = sample.status, sample.status.trainer
    counts, dead = status.counts, status.counts.get("dead", 0)
    table = Table("groups", "", title="queue")
    rows = {
        "waiting": str(status.queued - status.pending),
        "read ahead": str(status.pending),
        "trained on": f"{counts.get('trained', 0)} ({sample.trained_per_s:.1f}/s)",
        "held for a resumed run": str(status.held),
        "too old": str(counts.get("stale", 0)),
        "pushed twice": str(counts.get("duplicate", 0)),
        "filtered away": str(counts.get("filtered", 0)),
        "dropped when full": str(counts.get("dropped", 0)),
        "lost to a run that went back": str(counts.get("lost", 0)),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    table.add_row("dead letters", Text(str(dead), style="red" if dead else ""))
    table.add_row("trainer", "none yet" if trainer is None else f"version {trainer.version}")
    for env_id, level in levels_from_text(trainer.levels if trainer else "").items():
        table.add_row("level", _plain(f"{level} of {env_id}"))
    return table


def _actors(sample: Sample) -> Table:
    """A row for each actor that lives, and their sum as the title."""
    table = Table("actor", "version", "playing", "pushed", "groups/s", "tokens/s")
    table.title = f"{len(sample.status.actors)} actors, {sample.tokens_per_s:.0f} tokens/s"
    for report in sample.status.actors:
        rate = sample.actors.get(report.name, Rate())
        table.add_row(
            _plain(report.name),
            str(report.version),
            str(report.running),
            str(report.groups),
            f"{rate.groups:.1f}",
            f"{rate.tokens:.0f}",
        )
    return table


def _servers(loads: Sequence[Load]) -> Group:
    """A row each; below, why some are silent."""
    table = Table("server", "version", "state", "running", "waiting", "cache", "tokens/s")
    # An address that is wrapped cannot be copied.
    table.columns[0].no_wrap = True
    total = sum(load.tokens_per_s for load in loads)
    table.title = f"servers, {total:.0f} tokens/s"
    for load in loads:
        table.add_row(*_server_row(load))
    silent = [load.status for load in loads if load.status.error]
    return Group(table, *(_plain(f"{each.url}: {each.error}", "red") for each in silent))


def _server_row(load: Load) -> tuple[Text | str, ...]:
    now = load.status
    if now.error:
        return _plain(now.url), "", Text("silent", style="red"), "", "", "", ""
    return (
        _plain(now.url),
        _plain(now.version),
        "paused" if now.is_paused else "serving",
        str(now.running),
        str(now.waiting),
        f"{now.cache:.0%}",
        f"{load.tokens_per_s:.0f}",
    )


def _lags(status: QueueStatus) -> Table:
    """Groups trained on by lag, as bars that the largest of fills."""
    table = Table("lag", "groups", "", title="updates between sampling and training")
    # The largest fills the bar, whatever the number of groups so far.
    most = max(status.lags.values(), default=1)
    for lag, groups in status.lags.items():
        table.add_row(str(lag), str(groups), "█" * max(1, round(BAR * groups / most)))
    return table


def _plain(name: str, style: str = "") -> Text:
    """Neither markup nor what a terminal would obey."""
    # Escape sequences of a hostile name could rewrite the screen, or fill the clipboard.
    return Text("".join(c if c.isprintable() else "?" for c in name), style=style)
