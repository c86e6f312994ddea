"""Inspection of groups on arrival: one that cannot be trained on costs itself, and no run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludic_train.errors import BadGroup
from ludic_train.pipeline.codec import RolloutGroup, group_from_bytes
from ludic_train.pipeline.queues.base import Entry, TrainerReport
from ludic_train.rows import largest_id
from ludic_train.types import SAWItem

LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Ready:
    """A group that was read and inspected.

    oldest: update whose params sampled its oldest token; None where tokens do not say theirs.
    """

    entry: Entry
    group: RolloutGroup
    oldest: int | None


class Inspector:
    """Decodes entries, and refuses those that must not be trained on.

    max_attempts, vocab_size: as in `PipelineBatchSource`.
    """

    def __init__(self, *, max_attempts: int, vocab_size: int | None) -> None:
        self._max_attempts, self._vocab_size = max_attempts, vocab_size
        self._kinds: dict[str, str] = {}

    def inspected(self, entry: Entry, trainer: TrainerReport) -> Ready:
        """The entry with its group. Raises BadGroup for one that must not be trained on."""
        if entry.attempts >= self._max_attempts:
            raise BadGroup(f"{entry.attempts} trainers died with it in their batch")
        group = group_from_bytes(entry.data)
        if group.key != entry.key:
            pushed = brief(entry.key)
            raise BadGroup(f"it says its key is {group.key!r}, but was pushed as {pushed!r}")
        rows = group.rows
        # An id outside the vocabulary would end the trainer in a kernel, without a name.
        largest = max(map(largest_id, rows), default=-1)
        if self._vocab_size is not None and largest >= self._vocab_size:
            raise BadGroup(f"a token id is {largest}; the model has {self._vocab_size}")
        oldest = oldest_version(rows)
        if trainer.max_lag is not None and rows and oldest is None:
            raise BadGroup("its tokens do not say which version sampled them")
        for name, metric in group.metrics.items():
            # Metrics of several groups are added up, which two kinds of one name cannot be.
            kind = type(metric).__name__
            if self._kinds.setdefault(name, kind) != kind:
                raise BadGroup(f"its metric {name!r} is a {kind}, elsewhere {self._kinds[name]}")
        return Ready(entry, group, oldest)


def oldest_version(rows: Sequence[SAWItem]) -> int | None:
    """Oldest version of all sampled tokens; None if a row has none, or nothing was sampled."""
    if any(row.versions is None for row in rows):
        return None
    sampled = [row.versions[row.action_mask] for row in rows if row.versions is not None]
    return min((int(versions.min()) for versions in sampled if len(versions)), default=None)


def brief(text: str) -> str:
    """Untrusted text, short enough for a log and for a dead letter."""
    return (
        text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    )
