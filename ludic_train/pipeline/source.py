"""Batches of groups that actors pushed: read and decoded while the trainer computes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_train.errors import CheckpointError
from ludic_train.pipeline.loop_thread import LoopThread
from ludic_train.pipeline.queues.base import GroupQueue, QueueStatus, TrainerReport
from ludic_train.pipeline.reader import Feed, FeedOptions, Given, KeepGroup, Position
from ludic_train.trainer.config import TrainerConfig
from ludic_train.types import SAWBatch

BATCHES_AHEAD = 2


class PipelineBatchSource:
    """Batches of `groups_per_batch` groups from a queue, in the order in which they were pushed.

    The first `trained` takes the queue over: another trainer that reads it stops. A group whose
    oldest token would be more than `max_lag` updates old at the last update made from it is dropped
    as a whole, and counted.

    queue: one for this source alone, made by RedisQueue, SpoolQueue or open_queue.
    cfg: the trainer's; its `max_lag`, or None for no limit, holds for actors too.
    keep: which groups are trained on. vocab_size: groups with a greater token id are refused.
    hold: groups that were trained on but that no checkpoint covers stay in the queue, this many at
        most, for a resumed run to train on them again; what is more is released, and counted as
        lost if a run goes back behind it. A Redis needs memory for these and for those that wait.
    max_attempts: trainers that may die with a group in their batch before it is held to be the
        cause, and goes to the dead letters.
    """

    def __init__(
        self,
        queue: GroupQueue,
        *,
        groups_per_batch: int,
        cfg: TrainerConfig,
        max_lag: int | None = None,
        keep: KeepGroup | None = None,
        vocab_size: int | None = None,
        hold: int = 4_096,
        max_attempts: int = 5,
    ) -> None:
        _check_at_least(1, groups_per_batch=groups_per_batch, max_attempts=max_attempts)
        _check_at_least(0, hold=hold)
        limit = cfg.max_lag if max_lag is None else max_lag
        updates = cfg.epochs * cfg.minibatches
        _refuse_impossible(limit, updates, cfg.sync_every_steps)
        report = TrainerReport(
            version=0,
            groups_per_batch=groups_per_batch,
            updates_per_batch=updates,
            max_lag=limit,
        )
        options = FeedOptions(
            ahead=BATCHES_AHEAD * groups_per_batch,
            hold=hold,
            max_attempts=max_attempts,
            vocab_size=vocab_size,
            keep=keep,
        )
        self._feed = Feed(queue, report, options)
        self._thread: LoopThread | None = None
        self._coming: Future[Given] | None = None
        self._asked = 0
        self._closed = False

    async def trained(self, version: int) -> None:
        """All batches given so far are in the params `version`: release them. Begins, too."""
        if self._thread is None:
            self._thread = LoopThread("queue")
        if self._feed.begun:
            await self._thread.call(self._feed.settle(version))
        else:
            await self._thread.call(self._feed.begin(version))

    async def next_batch(self) -> SAWBatch:
        """The rows of the next groups; waits for them.

        Raises QueueError, Superseded, and EmptyBatch after many batches of groups without rows.

        Cancelled, it skips nothing: the next call is given what this one waited for.
        """
        if self._thread is None or not self._feed.begun:
            raise ConfigError("call trained(version) before the first batch, as Trainer.train does")
        if self._coming is None:
            self._coming = self._thread.start(self._feed.batch())
        try:
            batch = await asyncio.shield(asyncio.wrap_future(self._coming))
        except Exception:
            self._coming = None
            raise
        self._coming = None
        self._feed.give(batch)
        return SAWBatch(items=tuple(batch.rows), metrics=batch.metrics)

    def state_dict(self) -> dict[str, Any]:
        """The last group that was trained on, and how many that makes.

        Asked again, a source takes the state that it gave before to be in a checkpoint: whoever
        saves completes one before the next. What that one covers is released.
        """
        self._feed.cover(self._asked)
        position = self._feed.position
        self._asked = position.trained
        return asdict(position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the groups of `state`; those after it are given again."""
        if self._thread is not None:
            raise ConfigError("the queue is being read already; load the state before training")
        if "cursor" not in state:
            raise CheckpointError(
                f"the checkpoint's source kept {sorted(state)}: that run did not learn from a queue"
            )
        self._feed.position = Position(str(state["cursor"]), int(state["trained"]))
        self._asked = self._feed.position.trained

    async def status(self) -> QueueStatus:
        """The queue at a glance. Only after training began."""
        if self._thread is None:
            raise ConfigError("the queue is not open before training begins")
        return await self._thread.call(self._feed.queue.status())

    async def aclose(self) -> None:
        """Stop reading; what was not trained on stays in the queue."""
        if self._closed:
            return
        self._closed = True
        if self._coming is not None:
            self._coming.cancel()
        if self._thread is None:
            await self._feed.end()
            return
        try:
            await self._thread.call(self._feed.end())
        finally:
            self._thread.close()


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")


def _refuse_impossible(max_lag: int | None, updates: int, sync_every: int) -> None:
    oldest = updates - 1 + sync_every - 1
    if max_lag is not None and max_lag < oldest:
        raise ConfigError(
            f"max_lag={max_lag}, but {updates} updates per batch and sync_every_steps={sync_every} "
            f"make groups {oldest} updates old before any actor can have newer params, so that "
            f"training would stand still; set max_lag={oldest} or more"
        )
