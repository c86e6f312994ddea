"""A trainer's record of the groups of a queue: read, trained on, held for a resumed run, released.

Entries are read in the order of their ids, so that one id says what has been seen: `_seen_to`,
which begins at the cursor of the checkpoint. An entry at or below it is never trained on again,
whatever a server delivers that came back from an older snapshot. Those that the trainer still has
are in `_known`; any other is removed from the queue as a duplicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ludic_train.cluster.queues.base import (
    REMEMBERED_KEYS,
    Entry,
    Progress,
    TakenOver,
    Trained,
    TrainerReport,
    id_order,
)


@dataclass(frozen=True, slots=True)
class Position:
    """The last group that updates were made from, or that had no rows; the number of such groups.

    cursor: its id in the queue.
    """

    cursor: str
    trained: int


class Ledger:
    """Groups of one reader; no call of the queue is made here.

    hold: as in `PipelineBatchSource`.
    position: progress through the queue; another thread may read it at any moment.
    released_to: id of the last entry that may go, with all before it.
    attempts: readers that died with an entry in their batch, by its id.
    """

    def __init__(self, hold: int) -> None:
        self.position = Position("", 0)
        self.released_to = ""
        self.attempts: Mapping[str, int] = {}
        self._hold = hold
        # Id of the entry that a key belongs to.
        self._owners: dict[str, str] = {}
        # Ids that were read and not released, in the order of reading; False for those whose
        # entries a server has lost, with which no resumed run can train again.
        self._known: dict[str, bool] = {}
        self._seen_to: tuple[int, ...] = ()
        self._held: deque[str] = deque()
        self._covered = 0
        # Facts that the queue lacks still: a call that was cancelled is made up for.
        self._unsent: list[Trained] = []
        self._leaving: list[str] = []
        self._retired: list[str] = []

    def begin(self) -> None:
        """Start after `position`, which a checkpoint covers."""
        self.released_to, self._covered = self.position.cursor, self.position.trained
        self._seen_to = id_order(self.released_to) if self.released_to else ()

    @property
    def has_news(self) -> bool:
        """True if the queue lacks facts still."""
        return bool(self._unsent or self._retired)

    @property
    def held(self) -> tuple[str, ...]:
        """Ids of the entries that were trained on and stay for a resumed run."""
        return tuple(self._held)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the entries that were read, and not trained on yet."""
        held = {*self._held}
        return tuple(one for one in self._known if one not in held)

    def note_read(self, entries: Sequence[Entry]) -> list[Entry]:
        """Note that these were read; those that were not seen before."""
        new = [entry for entry in entries if id_order(entry.id) > self._seen_to]
        # All at once: a take-over while the first is judged must count the others as known.
        self._known |= dict.fromkeys((entry.id for entry in new), True)
        self._seen_to = id_order(new[-1].id) if new else self._seen_to
        return new

    def knows(self, entry: Entry) -> bool:
        """True if the entry was read, and neither discarded nor released."""
        return entry.id in self._known

    def is_duplicate(self, entry: Entry) -> bool:
        """True if the entry's key belongs to another one."""
        return self._owners.get(entry.key, entry.id) != entry.id

    def note_owner(self, entry: Entry) -> None:
        """Let the entry have its key: another one with it is a duplicate from here on."""
        self._owners[entry.key] = entry.id

    def note_discarded(self, entry: Entry) -> None:
        """Forget an entry that has left the queue."""
        self._known.pop(entry.id, None)

    def note_trained(self, groups: Sequence[Trained]) -> None:
        """Note that updates were made from these, and let the oldest that were held go."""
        for one in groups:
            if self._known.get(one.id):
                self._held.append(one.id)
            else:
                self._known.pop(one.id, None)
        self._owners |= {one.key: one.id for one in groups}
        if groups:
            self.position = Position(groups[-1].id, self.position.trained + len(groups))
        self._unsent += groups
        # In order, so that the queue holds all groups after one position, the one to resume from.
        while self._held and (
            len(self._held) > self._hold or self.position.trained - len(self._held) < self._covered
        ):
            self.released_to = self._held.popleft()
            self._known.pop(self.released_to, None)
            self._leaving.append(self.released_to)

    def cover(self, trained: int) -> None:
        """Let the first `trained` groups go: a checkpoint covers them."""
        self._covered = max(self._covered, trained)

    def retire(self, tasks: Sequence[str]) -> None:
        """Keep actors from playing these tasks again, from the next report on."""
        self._retired += tasks

    def progress(self, trainer: TrainerReport) -> Progress:
        """Facts for the queue, as they are now."""
        return Progress(
            trainer=trainer,
            held=len(self._held),
            total=self.position.trained,
            apart=sum(not there for there in self._known.values()),
            trained=tuple(self._unsent),
            release=tuple(self._leaving),
            retired=tuple(self._retired),
        )

    def note_sent(self, progress: Progress) -> None:
        """Note that the queue has these facts."""
        # Only what was sent: a cancelled call may have left more, and more may have come since.
        del self._unsent[: len(progress.trained)], self._leaving[: len(progress.release)]
        del self._retired[: len(progress.retired)]
        # As many keys as the queue remembers, and those of all groups that wait or are held: their
        # duplicates may still come.
        surplus = max(0, len(self._owners) - REMEMBERED_KEYS)
        for key, entry_id in list(islice(self._owners.items(), surplus)):
            if entry_id not in self._known:
                del self._owners[key]

    def note_take_over(self, taken: TakenOver, held: Sequence[str]) -> None:
        """Note what the queue has still, after a take-over that named `held`."""
        # A held group that is gone is none of this reader's any more: it is in the params.
        gone = {*held} - taken.there
        self._known = {one: one in taken.there for one in self._known if one not in gone}
        self._held = deque(one for one in self._held if one in taken.there)
        self._owners |= taken.owners
        self.attempts = taken.attempts
