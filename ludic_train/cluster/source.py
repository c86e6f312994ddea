"""Batches of groups that actors pushed: read and decoded while the trainer computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.recorder import Weights
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.cluster.ledger import Position
from ludic_train.cluster.loop_thread import LoopThread
from ludic_train.cluster.queues.base import GroupQueue, QueueStatus, TrainerReport
from ludic_train.cluster.queues.retry import keep_alive, retry
from ludic_train.cluster.reader import QueueReader
from ludic_train.cluster.validation import GroupValidator
from ludic_train.errors import CheckpointError
from ludic_train.metrics import Metrics, merge
from ludic_train.rows import credit_by_group, credited, weighted_rows
from ludic_train.sources.base import Gathered, Pace, TaskHistory, gathered_groups
from ludic_train.sources.levels import (
    Levels,
    levels_to_text,
    restore_levels,
    state_of_levels,
)
from ludic_train.types import SAWBatch, Trajectory

RecordCredit = Callable[[Mapping[str, Weights]], None]
"""Keeps the credit of groups by name, for the episodes that actors have recorded."""

# One batch to train on next, and one that fills while the trainer takes that.
BATCHES_AHEAD = 2


class PipelineBatchSource:
    """Batches of `groups_per_batch` groups from a queue, in the order in which they were pushed.

    `begin` takes the queue over: another trainer that reads it stops. The queue passes the group
    size, the pace of the trainer and the lag that its algorithm allows on to actors. A group whose
    oldest token would be more than `max_lag` updates old at the last update made from it is dropped
    as a whole, and counted.

        queue = RedisQueue("redis://localhost:6379", "my-run")
        source = PipelineBatchSource(queue, groups_per_batch=32, group_size=8)
        trainer = Trainer(model, grpo(max_lag=2), source, publisher)
        await trainer.train(1_000)
        await source.aclose()

    Two loops share this object. The queue and its reader live in a thread of their own, which reads
    and decodes while the trainer computes; the methods here run in the trainer's loop and pass work
    on. Of the reader, they touch only what is replaced as a whole (`position`), or what its running
    calls do not read.

    queue: one for this source alone, made by RedisQueue, SQLiteQueue or open_queue.
    groups_per_batch: at most the queue's `max_queued`.
    group_size: rollouts of one task that an actor plays.
    vocab_size: groups with a greater token id are refused.
    hold: groups that were trained on but that no checkpoint covers stay in the queue, this many at
        most, for a resumed run to train on them again; what is more is released, and counted as
        lost if a run goes back behind it. A Redis needs memory for these and for those that wait.
    max_attempts: trainers that may die with a group in their batch before it is held to be the
        cause, and goes to the dead letters.
    levels: moved by each batch; actors get the current ones with their admissions.
    `credit`, if it is set, gets the credit of each batch.
    """

    def __init__(
        self,
        queue: GroupQueue,
        *,
        groups_per_batch: int,
        group_size: int,
        vocab_size: int | None = None,
        hold: int = 4_096,
        max_attempts: int = 5,
        levels: Levels | None = None,
    ) -> None:
        if min(groups_per_batch, group_size, max_attempts) < 1 or hold < 0:
            raise ConfigError(
                f"groups_per_batch={groups_per_batch}, group_size={group_size} and max_attempts="
                f"{max_attempts} must be at least 1, hold={hold} at least 0"
            )
        self.history, self.levels = TaskHistory(), levels
        self.credit: RecordCredit | None = None
        self._groups_per_batch, self._group_size = groups_per_batch, group_size
        self._reader = QueueReader(
            queue,
            self.history,
            ahead=BATCHES_AHEAD * groups_per_batch,
            hold=hold,
            validator=GroupValidator(max_attempts=max_attempts, vocab_size=vocab_size),
        )
        self._thread: LoopThread | None = None
        self._coming: Future[Gathered] | None = None
        self._claimed: Future[None] | None = None
        # Groups trained on at the last state_dict(), whose checkpoint may not be complete yet.
        self._saved = 0
        self._closed = False

    def claim(self) -> None:
        """Become the queue's only reader, before a checkpoint is loaded.

        The trainer before learns of it within a second, and begins no further save; one that it is
        in may complete after this. Blocks until the queue responds.
        Raises Superseded where the trainer before took the queue from one that ran, and runs
        itself; QueueError as `begin`.
        """
        self._thread, queue = self._thread or LoopThread("queue"), self._reader.queue
        self._thread.start(retry(queue.claim)).result()
        # Loading takes minutes, in which a claim without signs of life would pass for a dead one.
        self._claimed = self._thread.start(keep_alive(queue))

    async def begin(self, pace: Pace) -> None:
        """Take the queue over and start to read.

        Called once, by `Trainer.train`, before the first batch.
        Raises ConfigError where no group could ever be fresh enough, QueueError for a queue that
        cannot be used or that does not answer for ten minutes.
        """
        if pace.max_lag is not None and pace.max_lag < pace.oldest_lag:
            raise ConfigError(
                f"max_lag={pace.max_lag}, but {pace.updates_per_batch} updates per batch make "
                f"groups {pace.oldest_lag} updates old before any actor can have newer params, so "
                f"that training would stand still; set max_lag={pace.oldest_lag} or more"
            )
        report = TrainerReport(
            version=pace.version,
            groups_per_batch=self._groups_per_batch,
            group_size=self._group_size,
            updates_per_batch=pace.updates_per_batch,
            max_lag=pace.max_lag,
            levels=self._levels_text(),
        )
        # A loop of its own, because the trainer's stands still during an update.
        self._thread = self._thread or LoopThread("queue")
        await self._thread.call(self._reader.begin(report, list(self.history.retired)))
        if self._claimed is not None:
            self._claimed.cancel()

    async def trained(self, version: int) -> None:
        """Note that all batches given so far are in the params `version`, and release them."""
        await self._running().call(self._reader.settle(version))

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """Rows of the next groups; waits for them.

        algo: filters the groups and assigns their credit.
        Raises QueueError, Superseded, and EmptyBatch after many batches of groups without rows.
        Cancelled, it skips nothing: the next call is given the groups that this one waited for.
        """
        thread = self._running()
        # A cancelled call leaves its groups here, already taken from the queue.
        if self._coming is None:
            note = partial(self._note, algo)
            count = self._groups_per_batch
            spare = 0 if self.levels is None else self.levels.batches_down(count)
            groups = gathered_groups(self._reader, algo, count, note, spare=spare)
            self._coming = thread.start(groups)
        waiting = asyncio.wrap_future(self._coming)
        # Unlike `await waiting`, a cancelled wait leaves the batch to the next call. From the next
        # line on nothing awaits: a batch is taken, given and noted, or none of it happens.
        await asyncio.wait({waiting})
        self._coming = None
        batch = waiting.result()
        self._reader.give()
        metrics = merge([batch.metrics, self._note(algo, batch.seen)])
        by_step = credited(batch.kept, batch.learned, algo)
        credit = credit_by_group(batch.seen, batch.learned, by_step, algo)
        if self.credit is not None and credit is not None:
            self.credit(credit)
        items = tuple(weighted_rows(batch.learned, by_step, algo))
        if self.levels is not None:
            metrics |= self.levels.metrics()
        return SAWBatch(items=items, metrics=metrics)

    def state_dict(self) -> dict[str, Any]:
        """The last group that was trained on, the number of such groups, pass rates, and levels.

        Each call takes the state that the last one gave to be in a checkpoint: a caller completes
        one save before the next. Groups that it covers are released.
        Raises Superseded once another trainer reads the queue: this one must not save.
        """
        self._reader.check()
        # One save late: the checkpoint with the last state is complete only now.
        self._reader.ledger.cover(self._saved)
        position = self._reader.ledger.position
        self._saved = position.trained
        state = {**asdict(position), "history": self.history.state_dict()}
        return state | state_of_levels(self.levels)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the groups of `state`; those after it are given again.

        Raises ConfigError once reading has begun, CheckpointError for the state of a source that
        learned from something else than a queue.
        """
        if self._reader.is_reading:
            raise ConfigError("the queue is being read already; load the state before training")
        if "cursor" not in state:
            raise CheckpointError(
                f"the checkpoint's source kept {sorted(state)}: that run did not learn from a queue"
            )
        self._reader.ledger.position = Position(str(state["cursor"]), int(state["trained"]))
        # A state that was loaded is in a checkpoint that is complete, so its groups may go.
        self._saved = self._reader.ledger.position.trained
        self.history.load_state_dict(state["history"])
        restore_levels(self.levels, state)

    async def status(self) -> QueueStatus:
        """The queue at a glance. Raises ConfigError before training began."""
        return await self._running().call(self._reader.queue.status())

    async def aclose(self) -> None:
        """Stop reading; groups that were not trained on stay in the queue. May be called twice."""
        if self._closed:
            return
        self._closed = True
        # Before the reader ends, or the wait for groups would outlive it.
        for future in (self._coming, self._claimed):
            if future is not None:
                future.cancel()
        if self._thread is None:
            await self._reader.end()
            return
        try:
            await self._thread.call(self._reader.end())
        finally:
            self._thread.close()

    def _note(self, algo: RLAlgorithm, seen: Sequence[Trajectory]) -> Metrics:
        """Count groups in the pass rates and for the levels; metrics of the levels.

        Groups of a batch that is given are counted by the trainer's loop, because a state that is
        saved before must not have them; those that are passed over by the reader's.
        """
        if algo.retire_at is not None:
            self._reader.ledger.retire(self.history.note(seen, algo.retire_at))
        metrics = {} if self.levels is None else self.levels.note(seen)
        self._reader.levels = self._levels_text()
        return metrics

    def _levels_text(self) -> str:
        return levels_to_text({} if self.levels is None else self.levels.current)

    def _running(self) -> LoopThread:
        """The thread of the reader. Raises ConfigError before `begin`."""
        if self._thread is None or not self._reader.is_reading:
            raise ConfigError(
                "the queue is not open yet: call begin() first, as Trainer.train does"
            )
        return self._thread
