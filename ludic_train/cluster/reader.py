"""The trainer's end of a queue: groups read ahead, checked, given out once, and released.

Entries are read in the order of their ids, so that one id says what has been seen: `_seen_to`,
which begins at the cursor of the checkpoint. An entry at or below it is never trained on again,
whatever a server delivers that came back from an older snapshot. Those that the reader still has
are in `_known`; any other is removed from the queue as a duplicate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from ludic_gym.concurrency import cancel_all
from ludic_train.cluster.queues.base import (
    REMEMBERED_KEYS,
    Discarded,
    Entry,
    GroupQueue,
    Progress,
    TakenOver,
    Trained,
    TrainerReport,
    id_order,
    log_losses,
)
from ludic_train.cluster.queues.retry import BEAT_S, retry
from ludic_train.cluster.validation import GroupValidator, ReadyGroup, brief
from ludic_train.errors import BadGroup, QueueReset, Superseded
from ludic_train.metrics import Metrics, Peak, Stat, Total, merge
from ludic_train.sources.base import TaskHistory
from ludic_train.types import Trajectory

LOG = logging.getLogger(__name__)
T = TypeVar("T")
READ_AT_ONCE = 64
QUIET_S = 60.0
COUNTED = ("stale", "duplicate", "filtered", "dead", "lost")


@dataclass(frozen=True, slots=True)
class Position:
    """The last group that updates were made from, or that had no rows; the number of such groups.

    cursor: its id in the queue.
    """

    cursor: str
    trained: int


class QueueReader:
    """One reader of a queue; everything here runs in one event loop.

    position: progress through the queue; another thread may read it at any moment.
    trainer: its report, the version of which `settle` keeps up to date.
    history: groups of the tasks that it has retired are discarded.
    ahead: groups that are read and decoded before they are needed.
    hold: as in `PipelineBatchSource`. validator: of what is read, and of what came of it.
    """

    def __init__(
        self,
        queue: GroupQueue,
        history: TaskHistory,
        *,
        ahead: int,
        hold: int,
        validator: GroupValidator,
    ) -> None:
        self.position = Position("", 0)
        self.queue = queue
        self.trainer = TrainerReport(version=0, groups_per_batch=1, group_size=1)
        self._history = history
        self._hold = hold
        self._validator = validator
        # None once the reading task has ended, with the error that it ended with.
        self._ready: asyncio.Queue[ReadyGroup | None] = asyncio.Queue(ahead)
        self._owners: dict[str, str] = {}
        self._attempts: Mapping[str, int] = {}
        # Ids that were read and not released, in the order of reading; False for those whose
        # entries a server has lost, with which no resumed run can train again.
        self._known: dict[str, bool] = {}
        self._seen_to: tuple[int, ...] = ()
        # Groups of the batch that is being filled, and of those that the trainer has.
        self._taken: list[tuple[Entry, Trained]] = []
        self._batch: tuple[Trained, ...] = ()
        self._held: deque[str] = deque()
        # Facts that the queue lacks still: a call that was cancelled is made up for.
        self._unsent: list[Trained] = []
        self._leaving: list[str] = []
        self._retired: list[str] = []
        # Replaced as a whole by the trainer's thread, and sent with the next settlement.
        self.levels = ""
        self._released_to = ""
        self._covered = 0
        self._counts: Counter[str] = Counter()
        self._reader: asyncio.Task[None] | None = None
        self._reset, self._settling = asyncio.Lock(), asyncio.Lock()
        self._generation = 0

    @property
    def begun(self) -> bool:
        """True once the queue was taken over."""
        return self._reader is not None

    async def begin(self, trainer: TrainerReport, retired: Sequence[str]) -> None:
        """Take the queue over, to continue after `position`, and start reading.

        retired: keys of the tasks that actors must not play again.
        """
        self._released_to, self._covered = self.position.cursor, self.position.trained
        self._seen_to = id_order(self._released_to) if self._released_to else ()
        self.trainer, self.levels = trainer, trainer.levels
        await retry(self._take_over)
        self._retired += retired
        self._reader = asyncio.create_task(self._live())
        self._reader.add_done_callback(self._wake)

    async def take(self, count: int) -> tuple[list[Trajectory], Metrics]:
        """Trajectories of the next `count` groups that are fresh enough, and their metrics.

        `keep` or `give` must follow before `settle`. Waits without a limit, and warns each minute.
        Raises QueueError, Superseded, and the error that ended the reading task.
        """
        groups = [await self._fresh() for _ in range(count)]
        # Before training begins: a group that kills its trainer must be known to have been tried.
        await self._call(partial(self.queue.attempt, [ready.entry for ready in groups]))
        lags = [self._lag(ready) for ready in groups]
        for ready, lag in zip(groups, lags, strict=True):
            entry = ready.entry
            self._taken.append((entry, Trained(id=entry.id, key=entry.key, lag=lag)))
        found = [trajectory for ready in groups for trajectory in ready.group.trajectories]
        return found, self._metrics(groups, lags)

    async def keep(self, groups: Collection[str]) -> None:
        """Let all groups of the batch go but these: waiting, they would keep others away.

        Where some stay, the others are discarded, because groups before them are not in the params
        yet; a whole batch is passed over in order.
        """
        leaving = [(entry, trained) for entry, trained in self._taken if entry.key not in groups]
        self._taken = [(entry, trained) for entry, trained in self._taken if entry.key in groups]
        passed = tuple(trained for _, trained in leaving)
        if self._taken:
            for entry, _ in leaving:
                await self._discard(entry, "filtered")
        elif self._batch:
            self._batch += passed
        else:
            await self._settle(passed, self.trainer.version)

    def give(self) -> None:
        """Note that the trainer has the groups that were taken."""
        self._batch += tuple(trained for _, trained in self._taken)
        self._taken = []

    def retire(self, tasks: Sequence[str]) -> None:
        """Keep actors from playing these tasks again, from the next `settle` on."""
        self._retired += tasks

    async def settle(self, version: int, mismatched: Collection[str] = ()) -> None:
        """Note that the last batch, without `mismatched`, is in the params; release what may go."""
        # Every batch that was given is in the params: the trainer takes the next one only after all
        # updates from the last, or after it has skipped them.
        done, self._batch = self._batch, ()
        self._validator.note([one.key for one in done], mismatched)
        report = replace(self.trainer, version=version, levels=self.levels)
        if done or self._unsent or self._retired or report != self.trainer:
            await self._settle(done, version)

    async def _settle(self, done: tuple[Trained, ...], version: int) -> None:
        self.trainer = replace(self.trainer, version=version, levels=self.levels)
        for one in done:
            if self._known.get(one.id):
                self._held.append(one.id)
            else:
                self._known.pop(one.id, None)
        self._owners |= {one.key: one.id for one in done}
        if done:
            self.position = Position(done[-1].id, self.position.trained + len(done))
        self._unsent += done
        self._leaving += self._releasable()
        # One call at a time, because two would report the same facts and delete them twice.
        async with self._settling:
            await self._call(self._report_progress)
        self._forget_old_keys()

    async def _report_progress(self) -> None:
        # Made for each attempt: a reset in between changes what is held.
        progress = Progress(
            trainer=self.trainer,
            held=len(self._held),
            total=self.position.trained,
            apart=sum(not there for there in self._known.values()),
            trained=tuple(self._unsent),
            release=tuple(self._leaving),
            retired=tuple(self._retired),
        )
        await self.queue.settle(progress)
        # Only what was sent: a cancelled call may have left more, and more may have come since.
        del self._unsent[: len(progress.trained)], self._leaving[: len(progress.release)]
        del self._retired[: len(progress.retired)]

    def cover(self, trained: int) -> None:
        """Let the first `trained` groups go: a checkpoint covers them."""
        self._covered = max(self._covered, trained)

    def check(self) -> None:
        """Raise Superseded if another trainer has become the reader; needs no call of the queue."""
        reader = self._reader
        if reader is None or not reader.done() or reader.cancelled():
            return
        if isinstance(error := reader.exception(), Superseded):
            raise error

    async def end(self) -> None:
        """Stop reading and close the queue; what was read stays in it."""
        if self._reader is not None:
            await cancel_all([self._reader])
        await self.queue.aclose()

    def _releasable(self) -> list[str]:
        """Ids of the oldest held groups: those that a checkpoint covers, or that exceed `hold`."""
        # In order, so that the queue holds all groups after one position, the one to resume from.
        release, trained = [], self.position.trained
        while self._held and (
            len(self._held) > self._hold or trained - len(self._held) < self._covered
        ):
            self._released_to = self._held.popleft()
            self._known.pop(self._released_to, None)
            release.append(self._released_to)
        return release

    def _lag(self, ready: ReadyGroup) -> int | None:
        """Updates between the oldest token of a group and the last update made from it."""
        if ready.oldest is None:
            return None
        last = self.trainer.version + self.trainer.updates_per_batch - 1
        # A run that went back trains on groups of params that it has yet to make again.
        return max(0, last - ready.oldest)

    async def _fresh(self) -> ReadyGroup:
        """The next group that may be trained on; others are discarded on the way."""
        limit = self.trainer.max_lag
        while True:
            ready = await self._next()
            lag = self._lag(ready)
            # Once more, because time has passed since the group was read.
            if limit is not None and lag is not None and lag > limit:
                await self._discard(ready.entry, "stale")
            elif any(t.task in self._history.retired for t in ready.group.trajectories):
                await self._discard(ready.entry, "filtered")
            else:
                return ready

    async def _next(self) -> ReadyGroup:
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    found = await self._ready.get()
            except TimeoutError:
                LOG.warning(
                    "no group came for %.0f s; are there actors? `ludic status` shows them", QUIET_S
                )
                continue
            if found is not None:
                return found
            # The next call must not wait for a reader that has ended.
            self._ready.put_nowait(None)
            assert self._reader is not None
            self._reader.result()

    def _wake(self, reader: asyncio.Task[None]) -> None:
        """Let the next `take` see how the reading task ended; groups read so far are dropped."""
        while not self._ready.empty():
            self._ready.get_nowait()
        self._ready.put_nowait(None)

    async def _live(self) -> None:
        """Read, and report that this trainer lives, until either fails; its error."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._beat())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            await cancel_all(tasks)

    async def _beat(self) -> None:
        """Report each second: a trainer that was superseded while it computes learns it so."""
        while True:
            await self._call(self.queue.beat)
            await asyncio.sleep(BEAT_S)

    async def _read(self) -> None:
        while True:
            generation, entries = await self._call(self._read_once)
            # A take-over that has begun did not name these; once it has ended, all is read again.
            async with self._reset:
                entries = entries if generation == self._generation else []
            new = [entry for entry in entries if id_order(entry.id) > self._seen_to]
            # All at once: a take-over while the first is judged must count the others as known.
            self._known |= dict.fromkeys((entry.id for entry in new), True)
            self._seen_to = id_order(new[-1].id) if new else self._seen_to
            for entry in new:
                await self._judge(entry)
            for entry in entries:
                # After a reset all is read again. What is neither new nor known had gone before,
                # and is back from an older state of the server.
                if entry.id not in self._known and entry not in new:
                    await self._discard(entry, "duplicate")

    async def _read_once(self) -> tuple[int, list[Entry]]:
        generation = self._generation
        return generation, await self.queue.read(READ_AT_ONCE)

    async def _judge(self, entry: Entry) -> None:
        """Make the entry ready, or discard it for reasons that can be known now."""
        entry = replace(entry, attempts=self._attempts.get(entry.id, 0))
        # Before it is decoded, which costs more: an actor pushes again when a response was lost.
        if self._owners.get(entry.key, entry.id) != entry.id:
            await self._discard(entry, "duplicate")
            return
        try:
            ready = self._validator.validated(entry, self.trainer)
        except BadGroup as error:
            await self._discard(entry, "dead", brief(str(error)))
            return
        # From here on, another entry with this key is a duplicate.
        self._owners[entry.key] = entry.id
        await self._ready.put(ready)

    async def _discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        await self._call(lambda: self.queue.discard(entry, why, reason))
        self._known.pop(entry.id, None)
        self._counts[why] += 1
        if why == "dead":
            LOG.warning("group %r goes to the dead letters: %s", brief(entry.key), reason)

    def _forget_old_keys(self) -> None:
        """Remember as many keys as the queue does, and those of all groups that wait here."""
        # Keys of groups that wait or are held stay: their duplicates may still come.
        surplus = len(self._owners) - REMEMBERED_KEYS
        oldest = islice(self._owners.items(), max(0, surplus))
        for key, entry_id in list(oldest):
            if entry_id not in self._known:
                del self._owners[key]

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Result of a call to the queue, through failures and after it has forgotten its reader."""
        while True:
            # Which takeover the call belongs to, to tell a second finder of one reset from a second
            # reset.
            generation = self._generation
            try:
                return await retry(call)
            except QueueReset as reset:
                async with self._reset:
                    # Two calls may find out at once; the first takes over for both.
                    if generation == self._generation:
                        LOG.warning("taking the queue over again: %s", reset)
                        await retry(self._take_over)
                        # A server that lost its state has lost the retired tasks too.
                        self._retired += self._history.retired

    async def _take_over(self) -> None:
        """Become the only reader. The generation rises after it."""
        held = {*self._held}
        waiting = tuple(one for one in self._known if one not in held)
        report, kept, total = self.trainer, self._released_to, self.position.trained
        taken: TakenOver = await self.queue.take_over(
            report, kept=kept, total=total, held=tuple(self._held), waiting=waiting
        )
        self._generation += 1
        # A held group that is gone is none of this reader's any more: it is in the params.
        gone = held - taken.there
        self._known = {one: one in taken.there for one in self._known if one not in gone}
        self._held = deque(one for one in self._held if one in taken.there)
        self._owners |= taken.owners
        self._attempts = taken.attempts
        self._counts["lost"] += taken.lost
        log_losses(taken, self.position.trained)

    def _metrics(self, groups: Sequence[ReadyGroup], lags: Sequence[int | None]) -> Metrics:
        known = [lag for lag in lags if lag is not None]
        # Counts since the last batch, so that the metrics of all batches add up.
        counts, self._counts = self._counts, Counter()
        return merge(ready.group.metrics for ready in groups) | {
            "groups": Total(len(groups)),
            **{f"groups/{name}": Total(counts[name]) for name in COUNTED},
            "groups/ready": Stat(self._ready.qsize(), 1),
            "lag": Stat.of(known),
            "lag/max": Peak.of(known),
        }
