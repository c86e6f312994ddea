"""The wire from actors to a trainer: groups in order, kept until they have been learned from.

Any number of actors push; one trainer reads. A trainer that takes a queue over becomes its only
reader, and gets everything again that was read and not released; the reader before it gets
Superseded. No clock decides that a reader is dead, so that no slow clock can give a group to two.
A clock decides only that a reader is alive: one that took the queue from a living reader cannot be
superseded while it lives, so that two trainers which are restarted for ever settle it once.

The way of a group through the calls of `GroupQueue`:

    actor:    admit -> (plays) -> push
    trainer:  claim -> (loads a checkpoint) -> take_over -> read -> attempt -> (trains, publishes)
              -> settle -> (saves) -> settle
              of a group that is not trained on: read -> discard

Each call is atomic: it has happened as a whole or not at all, and a caller whose response was lost
makes it again. Between two calls, a crash leaves this:

- after `admit`: places stay taken until the actor is dead for the queue, 15 s later.
- after `claim`: the reader before ends at its next call; only a save that it is in may complete.
- after `push`: the group is queued. A push whose response was lost is repeated, and the second
  entry with the same key is discarded as a duplicate.
- after `read`: nothing changed; the next reader is given the same entries, in the same order.
- after `attempt`: as after `read`, and each entry of the batch has one more attempt. An entry that
  ends every trainer becomes a dead letter after some of these.
- after training, before `settle`: the updates are lost with the process, and the groups are trained
  on again from the checkpoint. None counts twice in the params, which lost these updates too.
- after `settle`: groups are held until a checkpoint covers them, so that a resumed run gets exactly
  the ones after its checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ludic_gym.errors import ConfigError
from ludic_train.errors import QueueError

# Keys of the groups that were trained on or discarded, to know a duplicate by.
REMEMBERED_KEYS = 16_384
# Dead letters that are kept, and bytes of each.
DEAD_LETTERS, DEAD_HEAD = 1_000, 4_096
MAX_QUEUED = 4_096
# Retired tasks that one admission names.
RETIRED_AT_ONCE = 1_000
# A reader that reports no more is dead after this, for a trainer that would take over.
READER_ALIVE_S = 5.0
# Why a group is not trained on: too old, pushed twice, filtered away, unreadable or poisonous.
Discarded = Literal["stale", "duplicate", "filtered", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pushed group, as the reader gets it.

    id: the queue's own, ascending in the order of pushes by `id_order`; a cursor for `take_over`.
    key: as it was pushed, by an untrusted actor.
    data: the bytes of `codec.group_to_bytes`, not checked yet.
    attempts: readers that took it into a batch and then died.
    """

    id: str
    key: str
    data: bytes = field(repr=False)
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorReport:
    """Report of an actor, in absolute numbers, so that one that is lost or repeated does no harm.

    name: unique among the actors; a second one of that name replaces the first.
    running: groups that it plays now.
    version: of the params that its next groups are sampled from.
    retired: retired tasks that it knows of; an admission names the ones after these.
    groups, tokens: pushed and sampled since it began.
    """

    name: str
    running: int
    version: int
    retired: int = 0
    groups: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerReport:
    """Report of a trainer, which holds for its actors.

    version: updates made so far.
    groups_per_batch: groups of one batch. group_size: rollouts of one task.
    updates_per_batch: updates made from each batch.
    max_lag: updates between the oldest token of a group and the last update made from it, at most;
        None for no limit.
    levels: of a curriculum, as `levels_to_text` writes them; "" without one.
    """

    version: int
    groups_per_batch: int
    group_size: int
    updates_per_batch: int = 1
    max_lag: int | None = None
    levels: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Response of a queue to the report of an actor.

    granted: groups that it may begin now, beside those that it plays.
    trainer: the report of the trainer that wants them; None while no trainer has come yet.
    retired: keys of further retired tasks, after those that the actor knows; at most
        RETIRED_AT_ONCE, so that a long list comes in several admissions.
    """

    granted: int
    trainer: TrainerReport | None
    retired: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A group that updates were made from, or that was passed over in order.

    lag: updates between its oldest token and the last update made from it; None if unknown.
    """

    id: str
    key: str
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a trainer in absolute numbers, so that sending it twice changes nothing.

    trainer: its report, with the version that the groups of `trained` are in.
    held: entries in the queue that were trained on and stay, for a resumed run to train on again.
    total: groups trained on, those that have gone included.
    apart: groups that wait at the reader alone, because the queue's server has lost them.
    trained: groups since the last report. They stay in the queue until they are released.
    release: ids that go now. They precede all that are held: the queue keeps an unbroken tail.
    retired: keys of tasks that no actor shall play again.
    """

    trainer: TrainerReport
    held: int = 0
    total: int = 0
    apart: int = 0
    trained: Sequence[Trained] = ()
    release: Sequence[str] = ()
    retired: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """Facts about the readers before, for one that takes over.

    owners: id of the entry that a key belongs to; another one with that key is a duplicate.
    attempts: of the entries that it will be given again.
    lost: groups that are gone, and that the state which this reader starts from lacks: trained on
        after it, or known to the reader before alone.
    forgot: True if the queue knows of fewer groups that were trained on than the reader: its server
        came back without what it last wrote, or is another one.
    there: ids, of those that the reader named, whose entries are in the queue.
    """

    owners: Mapping[str, str]
    attempts: Mapping[str, int]
    lost: int
    forgot: bool
    there: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry that could not be trained on.

    key, reason: at most DEAD_HEAD characters; the key is as untrusted as the rest.
    size: bytes of the whole entry. head: the first DEAD_HEAD of them, to see what was pushed.
    """

    id: str
    key: str
    reason: str
    size: int
    head: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A queue at a glance.

    queued: groups that wait to be trained on, the `pending` ones of which were read already.
    held: groups that were trained on and stay until a checkpoint covers them.
    counts: groups by what became of them: "trained", "lost" because a run went back behind
        them, or as in Discarded.
    lags: groups trained on by lag, in updates.
    actors: reports of those that live, by name.
    trainer: report of the newest reader; None before any.

    The numbers are read one after another while others push, so that they need not add up.
    """

    queued: int
    pending: int
    held: int
    counts: Mapping[str, int]
    lags: Mapping[int, int]
    actors: Sequence[ActorReport]
    trainer: TrainerReport | None


class GroupQueue(Protocol):
    """Carries groups; every call may raise QueueUnavailable and may then be made again."""

    async def admit(self, report: ActorReport, wanted: int) -> Admission:
        """Note that the actor lives, and grant as many of the `wanted` groups as it may begin.

        Those count as running until its next report. No more are granted than can be trained on
        within the trainer's `max_lag` if they are trained on in the order of admission.
        Report and grant are one step, so that two actors are never granted the same place.
        Raises QueueError where the trainer's batch is larger than the queue.
        """

    async def push(self, key: str, data: bytes) -> None:
        """Append a group, once the queue has room for it.

        Made again after a lost response, it appends an entry with the same key; the reader
        discards that one. The queue itself does not look at keys or bytes.
        """

    async def leave(self, name: str) -> None:
        """Forget an actor that ends, so that others get its places at once."""

    async def woken(self, name: str) -> bool:
        """Wait some seconds for a signal to the actor; True if it should report now.

        There may be room again for one that was granted less than it wanted.
        """

    async def claim(self) -> None:
        """Become the only reader, before the state to continue from is known.

        A trainer does so before it loads a checkpoint: the one before it begins no further save.
        Raises Superseded where the reader before took the queue from one that was alive, and lives.
        """

    async def take_over(
        self,
        trainer: TrainerReport,
        *,
        kept: str,
        total: int,
        held: Sequence[str] = (),
        waiting: Sequence[str] = (),
    ) -> TakenOver:
        """Become the only reader; everything after the entry `kept` will be read, in order.

        What is up to it ("" for nothing) is removed: a checkpoint covers it.
        total: as in Progress, of the state that the reader starts from.
        held, waiting: ids that the reader has from before a reset: trained on, and not yet.
        In one step the epoch is raised, which ends the reader before, and old groups are removed;
        made twice, it only raises the epoch twice.
        Raises QueueError for a `kept` of another kind of queue, Superseded as `claim`.
        """

    async def beat(self) -> None:
        """Note that the reader lives. Raises as `read` does."""

    async def read(self, count: int) -> list[Entry]:
        """The next entries, 1 to `count` in the order of pushes; [] if none came in a second.

        They stay in the queue. A read whose response was lost, or that was cancelled, skips
        nothing: the next one has the same entries.
        Raises Superseded, and QueueReset if the queue must be taken over again, because it came
        back without something that it had confirmed.
        """

    async def attempt(self, entries: Sequence[Entry]) -> None:
        """Note that these are in a batch now: if this reader dies, each has one more attempt.

        Made before training begins, and undone by `settle`: a group counts its own failures only.
        Raises as `read` does.
        """

    async def settle(self, progress: Progress) -> None:
        """Note how far the trainer is, count what it trained on, and remove what it releases.

        Made twice with the same progress, it changes nothing. Raises as `read` does.
        """

    async def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """Remove an entry that is not trained on; a dead one goes to the dead letters.

        Counted once, however often it is made. Raises as `read` does.
        """

    async def status(self) -> QueueStatus:
        """The queue at a glance; for any process, without a takeover."""

    async def dead_letters(self) -> list[DeadLetter]:
        """The latest dead letters, at most DEAD_LETTERS or a few more, oldest first."""

    async def aclose(self) -> None:
        """Close connections; nothing in the queue changes."""


def log_losses(taken: TakenOver, total: int) -> None:
    """Warn of groups that are gone. total: groups that the reader's state was trained on."""
    log = logging.getLogger(__name__)
    if taken.forgot:
        log.warning(
            "the queue's server came back without what it last wrote, or is another one: it knows "
            "of fewer than the %d groups that this run has trained on. Groups that it lost before "
            "they were read cannot be counted; with appendonly yes it keeps them",
            total,
        )
    if taken.lost:
        log.warning(
            "%d groups were trained on after the state that this run starts from, or waited at a "
            "trainer that died, and are gone; a larger `hold`, checkpoints more often, or "
            "appendonly yes would have kept them",
            taken.lost,
        )


def capacity(trainer: TrainerReport, version: int) -> int:
    """Groups that may wait and be played at once, by actors whose params are of `version`.

    The rule of AReaL (Fu et al. 2025, arXiv:2505.24298): the n-th group from now is in batch
    n // groups_per_batch, whose last update is made `updates_per_batch` - 1 after its first; that
    one must not come later than `max_lag` after `version`. Only for a trainer with a `max_lag`.

    The batch now and two more; one less where the params are an update old already; and none for
    params that are too old for any group to be in time:

    >>> trainer = TrainerReport(version=7, groups_per_batch=32, group_size=8, max_lag=2)
    >>> [capacity(trainer, version) for version in (7, 6, 4)]
    [96, 64, 0]
    """
    assert trainer.max_lag is not None
    # An actor may know a newer version than the queue's report of the trainer: lag is never < 0.
    left = trainer.max_lag - max(0, trainer.version - version) - (trainer.updates_per_batch - 1)
    return max(0, trainer.groups_per_batch * (left // trainer.updates_per_batch + 1))


def id_order(entry_id: str) -> tuple[int, ...]:
    """Key to compare ids by: as text, "9-0" would come after "10-0"."""
    return tuple(int(part) for part in entry_id.split("-"))


def check_room(max_queued: int) -> None:
    """Raise ConfigError for a queue that holds nothing."""
    if max_queued < 1:
        raise ConfigError(f"max_queued={max_queued}; a queue must hold at least 1 group")


def check_batch_fits(trainer: TrainerReport, max_queued: int) -> None:
    """Raise QueueError where a batch could never come together."""
    if trainer.groups_per_batch > max_queued:
        raise QueueError(
            f"max_queued={max_queued} is less than the trainer's groups_per_batch="
            f"{trainer.groups_per_batch}: a batch would never be full; raise max_queued"
        )
