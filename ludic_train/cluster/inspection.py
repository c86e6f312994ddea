"""Inspection of groups on arrival: one that cannot be trained on costs itself, and no run.

The codec has checked that all arrays fit each other and that rewards and log-probs are finite. Here
stand the bounds of values that a trainer can work with, far outside of what honest actors send.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

from ludic_train.cluster.codec import Bounded, RolloutGroup, group_readers
from ludic_train.cluster.codec_rows import Bounds
from ludic_train.cluster.queues.base import Entry, TrainerReport
from ludic_train.errors import BadGroup
from ludic_train.metrics import NOTHING, Metric

LONGEST_TEXT = 500
MAX_ROWS, MAX_METRICS, LONGEST_NAME = 10_000, 1_000, 200
TEMPERATURES = 1e-3, 1e3
# Rounding makes the log-prob of a certain token a little more than 0.
LOGPROBS = -1e4, 1e-2
# A run that went back meets groups of updates that it has yet to make again, but not so many.
LONGEST_REWIND = 100_000
# Bad groups in a row after which an actor's groups are not looked at any more, and actors to know.
BAD_IN_A_ROW, KNOWN_ACTORS = 8, 4_096
# Decodes an entry. Raises BadGroup.
Read = Callable[[], Bounded]


@dataclass(frozen=True, slots=True)
class Ready:
    """A group that was read and inspected.

    oldest: update whose params sampled its oldest token; None where tokens do not say theirs.
    """

    entry: Entry
    group: RolloutGroup
    oldest: int | None


def readers(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Read]]:
    """Each entry with the call that decodes it; small ones are decoded several at a time."""
    return zip(entries, group_readers(entry.data for entry in entries), strict=True)


class Inspector:
    """Decodes entries, and refuses those that must not be trained on.

    max_attempts, vocab_size: as in `PipelineBatchSource`.
    """

    def __init__(self, *, max_attempts: int, vocab_size: int | None) -> None:
        self._max_attempts, self._vocab_size = max_attempts, vocab_size
        self._kinds: dict[str, str] = {}
        # Apart, since groups that arrive well between those of other params would clear one count.
        self._unreadable, self._mismatched = _InARow(), _InARow()

    def inspected(self, entry: Entry, read: Read, trainer: TrainerReport) -> Ready:
        """The entry with its group. Raises BadGroup for one that must not be trained on.

        read: decodes the entry, as one of `readers`.
        An actor that sends many of these in a row is cut off: all its groups are bad from then on.
        """
        actor = _actor_of(entry.key)
        for counts, fault in (self._unreadable, "bad"), (self._mismatched, "of other params"):
            if (bad := counts.of(actor)) >= BAD_IN_A_ROW:
                raise BadGroup(
                    f"{bad} groups in a row of its actor {actor!r} were {fault}; it is cut off"
                )
        try:
            ready = self._inspected(entry, read, trainer)
        except BadGroup:
            self._unreadable.note(actor, bad=True)
            raise
        self._unreadable.note(actor, bad=False)
        return ready

    def note(self, keys: Iterable[str], mismatched: Collection[str]) -> None:
        """Note for their actors which of these groups were of other params than they name."""
        for key in keys:
            self._mismatched.note(_actor_of(key), bad=key in mismatched)

    def _inspected(self, entry: Entry, read: Read, trainer: TrainerReport) -> Ready:
        if entry.attempts >= self._max_attempts:
            raise BadGroup(f"{entry.attempts} trainers died with it in their batch")
        group, bounds = read()
        if group.key != entry.key:
            pushed = brief(entry.key)
            raise BadGroup(f"it says its key is {group.key!r}, but was pushed as {pushed!r}")
        # An id outside the vocabulary would end the trainer in a kernel, without a name.
        if self._vocab_size is not None and bounds.largest_id >= self._vocab_size:
            raise BadGroup(f"a token id is {bounds.largest_id}; the model has {self._vocab_size}")
        check_bounds(bounds, trainer.version)
        check_metrics(group.metrics)
        if trainer.max_lag is not None and bounds.num_rows and bounds.oldest is None:
            raise BadGroup("its tokens do not say which version sampled them")
        for name, metric in group.metrics.items():
            # Metrics of several groups are added up, which two kinds of one name cannot be.
            kind = type(metric).__name__
            if self._kinds.setdefault(name, kind) != kind:
                raise BadGroup(f"its metric {name!r} is a {kind}, elsewhere {self._kinds[name]}")
        return Ready(entry, group, bounds.oldest)


class _InARow:
    """Bad groups in a row of each actor; of the latest `KNOWN_ACTORS` that sent one."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def of(self, actor: str) -> int:
        return self._counts.get(actor, 0)

    def note(self, actor: str, *, bad: bool) -> None:
        if not bad:
            self._counts.pop(actor, None)
            return
        # Keys without an actor's name may come from several writers, so nobody is counted for them.
        if actor:
            self._counts[actor] = self.of(actor) + 1
            self._counts.move_to_end(actor)
        if len(self._counts) > KNOWN_ACTORS:
            self._counts.popitem(last=False)


def _actor_of(key: str) -> str:
    """The name of the actor that pushed a group with this key; "" for none."""
    # Actors number their keys. A writer under another's name can have that one cut off; but all
    # who may write here may delete the groups of others, too.
    return key.rpartition(":")[0][:LONGEST_NAME]


def check_bounds(bounds: Bounds, version: int) -> None:
    """Raise BadGroup for too many rows, and for values out of bounds. version: the trainer's."""
    if bounds.num_rows > MAX_ROWS:
        raise BadGroup(f"{bounds.num_rows} rows, more than {MAX_ROWS}")
    for temperature in bounds.temperatures or ():
        if not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
            raise BadGroup(f"temperature={temperature:g} is not within {TEMPERATURES}")
    if bounds.newest > version + LONGEST_REWIND:
        raise BadGroup(f"sampled by version {bounds.newest}, and the trainer is at {version}")
    least, most = bounds.logprobs
    if least < LOGPROBS[0] or most > LOGPROBS[1]:
        raise BadGroup(f"log-probs from {least:g} to {most:g} are not within {LOGPROBS}")


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
