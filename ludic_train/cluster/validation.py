"""Inspection of groups on arrival: one that cannot be trained on costs itself, and no run.

The codec has checked that all arrays fit each other and that rewards and log-probs are finite. Here
stand the bounds of values that a trainer can work with, far outside of what honest actors send.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from ludic_train.cluster.codec import RolloutGroup, group_from_bytes
from ludic_train.cluster.queues.base import Entry, TrainerReport
from ludic_train.errors import BadGroup
from ludic_train.metrics import NOTHING, Metric
from ludic_train.types import SAWItem

LONGEST_TEXT = 500
MAX_ROWS, MAX_METRICS, LONGEST_NAME = 10_000, 1_000, 200
TEMPERATURES = 1e-3, 1e3
# Rounding makes the log-prob of a certain token a little more than 0.
LOGPROBS = -1e4, 1e-2
# A run that went back meets groups of updates that it has yet to make again, but not so many.
LONGEST_REWIND = 100_000


@dataclass(frozen=True, slots=True)
class ReadyGroup:
    """A group that was read and inspected.

    oldest: update whose params sampled its oldest token; None where tokens do not say theirs.
    """

    entry: Entry
    group: RolloutGroup
    oldest: int | None


class GroupValidator:
    """Decodes entries, and refuses those that must not be trained on.

    max_attempts, vocab_size: as in `PipelineBatchSource`.
    """

    def __init__(self, *, max_attempts: int, vocab_size: int | None) -> None:
        self._max_attempts, self._vocab_size = max_attempts, vocab_size
        self._kinds: dict[str, str] = {}

    def validate(self, entry: Entry, trainer: TrainerReport) -> ReadyGroup:
        """The entry with its group. Raises BadGroup for one that must not be trained on."""
        if entry.attempts >= self._max_attempts:
            raise BadGroup(f"{entry.attempts} trainers died with it in their batch")
        group = group_from_bytes(entry.data, vocab_size=self._vocab_size)
        if group.key != entry.key:
            pushed = brief(entry.key)
            raise BadGroup(f"it says its key is {group.key!r}, but was pushed as {pushed!r}")
        check_rows(group.rows, trainer.version)
        check_metrics(group.metrics)
        oldest = oldest_version(group.rows)
        if trainer.max_lag is not None and group.rows and oldest is None:
            raise BadGroup("its tokens do not say which version sampled them")
        for name, metric in group.metrics.items():
            # Metrics of several groups are added up, which two kinds of one name cannot be.
            kind = type(metric).__name__
            if self._kinds.setdefault(name, kind) != kind:
                raise BadGroup(f"its metric {name!r} is a {kind}, elsewhere {self._kinds[name]}")
        return ReadyGroup(entry, group, oldest)


def check_rows(rows: Sequence[SAWItem], version: int) -> None:
    """Raise BadGroup for too many rows, and for values out of bounds. version: the trainer's."""
    if len(rows) > MAX_ROWS:
        raise BadGroup(f"{len(rows)} rows, more than {MAX_ROWS}")
    for row in rows:
        if not TEMPERATURES[0] <= row.temperature <= TEMPERATURES[1]:
            raise BadGroup(f"temperature={row.temperature:g} is not within {TEMPERATURES}")
        newest = 0 if row.versions is None else int(row.versions.max())
        if newest > version + LONGEST_REWIND:
            raise BadGroup(f"sampled by version {newest}, and the trainer is at {version}")
        if row.behavior_logprobs is None:
            continue
        least, most = row.behavior_logprobs.min(), row.behavior_logprobs.max()
        if least < LOGPROBS[0] or most > LOGPROBS[1]:
            raise BadGroup(f"log-probs from {least:g} to {most:g} are not within {LOGPROBS}")


def oldest_version(rows: Sequence[SAWItem]) -> int | None:
    """Version of the oldest sampled token; None if a row does not say it, or none was sampled."""
    oldest = []
    for row in rows:
        if row.versions is None:
            return None
        if row.action_mask.any():
            oldest.append(int(row.versions[row.action_mask].min()))
    return min(oldest, default=None)


def check_metrics(metrics: Mapping[str, Metric]) -> None:
    """Raise BadGroup for too many metrics, long names, and numbers that are not finite."""
    if len(metrics) > MAX_METRICS:
        raise BadGroup(f"{len(metrics)} metrics, more than {MAX_METRICS}")
    for name, metric in metrics.items():
        if len(name) > LONGEST_NAME:
            raise BadGroup(f"a metric's name has {len(name)} characters, more than {LONGEST_NAME}")
        # A metric of which nothing was counted may be infinite, and is no number of anything.
        if metric not in NOTHING and not all(math.isfinite(x) for x in astuple(metric)):
            raise BadGroup(f"its metric {name!r} is {metric}, which is not finite")


def brief(text: str) -> str:
    """Untrusted text, short enough for a log and for a dead letter."""
    return (
        text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    )
