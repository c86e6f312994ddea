"""The trainer's end of a queue: groups read ahead, checked, given out once, and released."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ludic_gym.concurrency import cancel_all
from ludic_train.cluster.ledger import Ledger
from ludic_train.cluster.queues.base import (
    Discarded,
    Entry,
    GroupQueue,
    Trained,
    TrainerReport,
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


class QueueReader:
    """One reader of a queue; everything here runs in one event loop.

    ledger: of the groups that were read; the trainer's thread reads its position.
    trainer: its report, the version of which `settle` keeps up to date.
    levels: replaced as a whole by the trainer's thread, and sent with the next settlement.
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
        self.queue = queue
        self.ledger = Ledger(hold)
        self.trainer = TrainerReport(version=0, groups_per_batch=1, group_size=1)
        self.levels = ""
        self._history, self._validator = history, validator
        # None once the reading task has ended, with the error that it ended with.
        self._ready: asyncio.Queue[ReadyGroup | None] = asyncio.Queue(ahead)
        # Groups of the batch that is being filled, and of those that the trainer has.
        self._taken: list[tuple[Entry, Trained]] = []
        self._batch: tuple[Trained, ...] = ()
        self._counts: Counter[str] = Counter()
        self._reading: asyncio.Task[None] | None = None
        # The generation rises with each take-over.
        self._resetting, self._settling = asyncio.Lock(), asyncio.Lock()
        self._generation = 0

    @property
    def is_reading(self) -> bool:
        """True once the queue was taken over."""
        return self._reading is not None

    async def begin(self, trainer: TrainerReport, retired: Sequence[str]) -> None:
        """Take the queue over, to continue after the ledger's position, and start reading.

        retired: keys of the tasks that actors must not play again.
        """
        self.ledger.begin()
        self.trainer, self.levels = trainer, trainer.levels
        await retry(self._take_over)
        self.ledger.retire(retired)
        self._reading = asyncio.create_task(self._live())
        self._reading.add_done_callback(self._wake)

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
        trajectories = [trajectory for ready in groups for trajectory in ready.group.trajectories]
        return trajectories, self._metrics(groups, lags)

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

    async def settle(self, version: int) -> None:
        """Note that the last batch is in the params; release what may go."""
        # Every batch that was given is in the params: the trainer takes the next one only after all
        # updates from the last, or after it has skipped them.
        done, self._batch = self._batch, ()
        report = replace(self.trainer, version=version, levels=self.levels)
        if done or self.ledger.has_news or report != self.trainer:
            await self._settle(done, version)

    async def _settle(self, done: tuple[Trained, ...], version: int) -> None:
        self.trainer = replace(self.trainer, version=version, levels=self.levels)
        self.ledger.note_trained(done)
        # One call at a time, because two would report the same facts and delete them twice.
        async with self._settling:
            await self._call(self._report_progress)

    async def _report_progress(self) -> None:
        # Made for each attempt: a reset in between changes what is held.
        progress = self.ledger.progress(self.trainer)
        await self.queue.settle(progress)
        self.ledger.note_sent(progress)

    def check(self) -> None:
        """Raise Superseded if another trainer has become the reader; needs no call of the queue."""
        reading = self._reading
        if reading is None or not reading.done() or reading.cancelled():
            return
        if isinstance(error := reading.exception(), Superseded):
            raise error

    async def end(self) -> None:
        """Stop reading and close the queue; what was read stays in it."""
        if self._reading is not None:
            await cancel_all([self._reading])
        await self.queue.aclose()

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
                    ready = await self._ready.get()
            except TimeoutError:
                LOG.warning(
                    "no group came for %.0f s; are there actors? `ludic status` shows them", QUIET_S
                )
                continue
            if ready is not None:
                return ready
            # The next call must not wait for a reader that has ended.
            self._ready.put_nowait(None)
            assert self._reading is not None
            self._reading.result()

    def _wake(self, reading: asyncio.Task[None]) -> None:
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
        async def read_once() -> tuple[int, list[Entry]]:
            generation = self._generation
            return generation, await self.queue.read(READ_AT_ONCE)

        while True:
            generation, entries = await self._call(read_once)
            # A take-over that has begun did not name these; once it has ended, all is read again.
            async with self._resetting:
                entries = entries if generation == self._generation else []
            new = self.ledger.note_read(entries)
            for entry in new:
                await self._judge(entry)
            for entry in entries:
                # After a reset all is read again. What is neither new nor known had gone before,
                # and is back from an older state of the server.
                if not self.ledger.knows(entry) and entry not in new:
                    await self._discard(entry, "duplicate")

    async def _judge(self, entry: Entry) -> None:
        """Make the entry ready, or discard it for reasons that can be known now."""
        entry = replace(entry, attempts=self.ledger.attempts.get(entry.id, 0))
        # Before it is decoded, which costs more: an actor pushes again when a response was lost.
        if self.ledger.is_duplicate(entry):
            await self._discard(entry, "duplicate")
            return
        try:
            ready = self._validator.validate(entry, self.trainer)
        except BadGroup as error:
            await self._discard(entry, "dead", brief(str(error)))
            return
        self.ledger.note_owner(entry)
        await self._ready.put(ready)

    async def _discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        await self._call(lambda: self.queue.discard(entry, why, reason))
        self.ledger.note_discarded(entry)
        self._counts[why] += 1
        if why == "dead":
            LOG.warning("group %r goes to the dead letters: %s", brief(entry.key), reason)

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Result of a call to the queue, through failures and after it has forgotten its reader."""
        while True:
            # Which takeover the call belongs to, to tell a second finder of one reset from a second
            # reset.
            generation = self._generation
            try:
                return await retry(call)
            except QueueReset as reset:
                async with self._resetting:
                    # Two calls may find out at once; the first takes over for both.
                    if generation == self._generation:
                        LOG.warning("taking the queue over again: %s", reset)
                        await retry(self._take_over)
                        # A server that lost its state has lost the retired tasks too.
                        self.ledger.retire([*self._history.retired])

    async def _take_over(self) -> None:
        """Become the only reader. The generation rises after it."""
        held, total = self.ledger.held, self.ledger.position.trained
        taken = await self.queue.take_over(
            self.trainer,
            kept=self.ledger.released_to,
            total=total,
            held=held,
            waiting=self.ledger.waiting,
        )
        self._generation += 1
        self.ledger.note_take_over(taken, held)
        self._counts["lost"] += taken.lost
        log_losses(taken, self.ledger.position.trained)

    def _metrics(self, groups: Sequence[ReadyGroup], lags: Sequence[int | None]) -> Metrics:
        dated = [lag for lag in lags if lag is not None]
        # Counts since the last batch, so that the metrics of all batches add up.
        counts, self._counts = self._counts, Counter()
        return merge(ready.group.metrics for ready in groups) | {
            "groups": Total(len(groups)),
            **{f"groups/{name}": Total(counts[name]) for name in COUNTED},
            "groups/ready": Stat(self._ready.qsize(), 1),
            "lag": Stat.of(dated),
            "lag/max": Peak.of(dated),
        }
