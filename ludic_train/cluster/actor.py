"""An actor: plays groups without end and pushes each as soon as it is complete.

Three things run at once in one event loop: a task that refreshes the params, a task per group that
is played, and the loop of `_Actor.run`, which reports to the queue, begins groups and collects
those that ended. Only the loop changes the tables of groups, so that no lock is needed.

A task of the iterator is in one place at any moment: among those played, in `again`, or pushed.
A stop, a stale group, a refusal or a failure moves it back to `again`. What is left at the end
stands in `ActorSummary.returned`, so that a caller can play it later.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ludic_gym.concurrency import cancel_all
from ludic_gym.errors import ClientError, ConfigError, EpisodeError
from ludic_gym.records import task_key
from ludic_gym.rollout.tasks import grouped
from ludic_gym.types import Episode, MakePolicy, Task
from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.cluster.queues.base import ActorReport, Admission, GroupQueue, TrainerReport
from ludic_train.cluster.queues.retry import retry
from ludic_train.errors import ActorError, QueueUnavailable
from ludic_train.metrics import episode_metrics
from ludic_train.rows import trajectories_from
from ludic_train.sources.levels import levels_from_text
from ludic_train.sources.rollouts import Matches, Scored, TaskPlayer


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """Settings of an actor.

        options = ActorOptions(concurrency=128, timeout_s=300)

    group_size: None takes the trainer's; another one than the trainer's is an error.
    concurrency: episodes at once; whole groups of them are begun.
    max_turns: of an episode, instead of its task's. timeout_s: the longest an episode may take.
    heartbeat_s: seconds between two reports to the queue.
    grace_s: time in which groups that are being played may end when the actor has to stop.
    max_failures: groups in a row that may fail, or refreshes of the params, with growing pauses,
        before the actor ends; groups that end in the same pause fail once.

    Raises ConfigError where not even one group could be played at a time.
    """

    group_size: int | None = None
    concurrency: int = 64
    max_turns: int | None = None
    timeout_s: float | None = None
    heartbeat_s: float = 1.0
    grace_s: float = 30.0
    max_failures: int = 8

    def __post_init__(self) -> None:
        if not 1 <= (self.group_size or 1) <= self.concurrency:
            raise ConfigError(
                f"concurrency={self.concurrency} with group_size={self.group_size}; an actor plays "
                "at least one whole group at a time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSummary:
    """Totals of an actor.

    pushed: groups in the queue. stale: groups that were dropped while they were played.
    returned: tasks that were taken from the iterator and not finished, each once.
    """

    pushed: int
    stale: int
    returned: tuple[Task, ...]


Refresh = Callable[[], Awaitable[int | None]]
"""Loads newer params, if there are any, and returns the version that is sampled from afterwards.

None if the trainer has published none yet.
"""

# Between two looks for newer params, and between two tries at a queue that is away.
POLL_S, AWAY_S, LONGEST_DELAY_S = 0.05, 1.0, 30.0
# Tasks that one report passes over, at most, in search of some that are not retired.
LONGEST_SEARCH = 1_000


async def run_pipeline_actor(
    tasks: Iterator[Task],
    play: MakePolicy | Matches | Scored,
    queue: GroupQueue,
    refresh: Refresh,
    options: ActorOptions | None = None,
    *,
    name: str | None = None,
    stop: asyncio.Event | None = None,
    levels: dict[str, int] | None = None,
    record: Callable[[Sequence[Episode]], None] | None = None,
) -> ActorSummary:
    """Play `tasks` in groups for the trainer that reads `queue`, until `stop` is set or they end.

        queue = open_queue("redis://localhost:6379", "my-run")
        served = ServedVersions(urls, [client])
        stop = asyncio.Event()
        summary = await run_pipeline_actor(tasks, play, queue, served.refresh, stop=stop)

    play: the policy of one agent, or `Matches` of several.
    refresh: called all the time, for the version that new groups will be sampled from. None holds
        the actor back.
    name: of the actor in `ludic status`, the host's if left out; a random id is added, so that
        actors of one name are not taken for one.
    stop: set by the caller, such as a signal's handler; groups that are played then may end within
        `grace_s`.
    levels: by id, from which `tasks` are made; it gets those of the trainer with each report.
    record: gets the episodes of each group before it is pushed, failed ones included.
    Tokens and rewards are pushed; the trainer filters them and assigns credit. The group size and
    the lag that is allowed come from the trainer, with each admission. A group begins only when the
    queue admits it, so that it cannot come too late unless others overtake it; one that has become
    too old is dropped, and its task played again. Clients and queues that fail are tried again,
    less and less often.
    Raises ActorError after too many failures in a row and for a group size other than the
    trainer's, QueueError for a queue that does not come back.
    """
    options = options or ActorOptions()
    actor = _Actor(tasks, play, queue, refresh, options, name, levels, record)
    return await actor.run(stop or asyncio.Event())


class _Actor:
    """State of one `run_pipeline_actor`."""

    def __init__(
        self,
        tasks: Iterator[Task],
        play: MakePolicy | Matches | Scored,
        queue: GroupQueue,
        refresh: Refresh,
        options: ActorOptions,
        name: str | None,
        levels: dict[str, int] | None,
        record: Callable[[Sequence[Episode]], None] | None,
    ) -> None:
        self.tasks, self.queue, self.refresh, self.options = tasks, queue, refresh, options
        # Keys must never come again, not even after a restart under the same name.
        self.run_id = secrets.token_hex(6)
        self.name = f"{name or socket.gethostname()}-{self.run_id}"
        self.player = TaskPlayer(play, concurrency=options.concurrency, timeout_s=options.timeout_s)
        # Groups that are played now, with the version that sampled their first tokens.
        self.playing: dict[asyncio.Task[None], tuple[Task, int]] = {}
        # Tasks that were taken and have to be played still; they come before new ones.
        self.again: deque[Task] = deque()
        self.retired: dict[str, None] = {}
        self.levels = {} if levels is None else levels
        self.record = record
        self.group_size = options.group_size
        self.version: int | None = None
        self.started = self.pushed = self.stale = self.tokens = 0
        # One pause for groups and for refreshes: both fail where the same servers are away.
        self.failures, self.pause_until = 0, 0.0
        self.ended = False
        # Set where a report may bring more than the last one: by newer params, or by the queue.
        self.bell = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> ActorSummary:
        """Play until `stop`, or until the tasks have run out; then let what is played end."""
        refreshing = asyncio.create_task(self._keep_refreshing())
        listening = asyncio.create_task(self._keep_listening())
        stopped = asyncio.create_task(stop.wait())
        try:
            while not (stop.is_set() or (self.ended and not self.playing and not self.again)):
                # A task, so that a stop need not wait for a queue that is away.
                beginning = asyncio.create_task(self._begin_groups())
                if not await _ended_before(beginning, stopped):
                    break
                await self._wait({refreshing, stopped}, beginning.result())
                # It ends only by an error, which ends the actor too.
                if refreshing.done():
                    refreshing.result()
            await self._finish()
        finally:
            # The pool is closed below: cancelled episodes must have returned their environments.
            await cancel_all([refreshing, listening, stopped, *self.playing])
            self.player.close()
            # A queue that is gone forgets the actor by itself.
            with suppress(QueueUnavailable):
                await self.queue.leave(self.name)
        returned = (*(task for task, _ in self.playing.values()), *self.again)
        return ActorSummary(pushed=self.pushed, stale=self.stale, returned=returned)

    async def _keep_refreshing(self) -> None:
        """Keep `version` up to date. Raises ActorError after too many failures of a client."""
        failures, delay_s = 0, POLL_S
        while True:
            try:
                before, self.version = self.version, await self.refresh()
                if before != self.version:
                    self.bell.set()
                failures, delay_s = 0, POLL_S
            except ClientError as error:
                failures += 1
                delay_s = self._pause(failures, "refreshes of the params", error)
            await asyncio.sleep(delay_s)

    async def _keep_listening(self) -> None:
        """Ring the bell for each signal of the queue."""
        while True:
            try:
                if await self.queue.woken(self.name):
                    self.bell.set()
            # The reports wait for the queue, and say so.
            except QueueUnavailable:
                await asyncio.sleep(AWAY_S)

    async def _begin_groups(self) -> bool:
        """Report, and begin as many groups as are admitted; True if the actor has no more room.

        The first report only brings the trainer's group size.
        """
        size = self.group_size
        self.bell.clear()
        free = 0 if size is None else self.options.concurrency // size - len(self.playing)
        # Read once: the version that is reported is the one that the groups begin with.
        version = self.version
        upcoming = [] if self._is_paused() or version is None else self._upcoming(free)
        try:
            admission = await self._reported(wanted=len(upcoming))
        except asyncio.CancelledError:
            # No task is lost by a stop: the summary returns them.
            self.again.extendleft(reversed(upcoming))
            raise
        for task in upcoming[: admission.granted]:
            self.started += 1
            # The queue's key is unique among all actors, which a hash of the task would not be.
            work = asyncio.create_task(self._play(task, key=f"{self.run_id}:{self.started}"))
            self.playing[work] = task, version or 0
        self.again.extendleft(reversed(upcoming[admission.granted :]))
        if admission.trainer is not None:
            self._drop_stale(admission.trainer)
        return size is not None and admission.granted == free

    async def _reported(self, *, wanted: int) -> Admission:
        """Response of the queue to a report. Raises ActorError as `_agree`, and QueueError."""
        report = ActorReport(
            name=self.name,
            running=len(self.playing),
            version=self.version or 0,
            groups=self.pushed,
            tokens=self.tokens,
            # A count and not the keys: the queue's list only grows, and names those after them.
            retired=len(self.retired),
        )
        admission = await retry(lambda: self.queue.admit(report, wanted))
        self.retired |= dict.fromkeys(admission.retired)
        if admission.trainer is not None:
            self._agree(admission.trainer)
            self.levels.update(levels_from_text(admission.trainer.levels))
        return admission

    def _agree(self, trainer: TrainerReport) -> None:
        """Take over the trainer's group size. Raises ActorError if the options have another one."""
        # Once: an actor that follows a trainer to another size would push groups of both.
        if self.group_size is None and trainer.group_size <= self.options.concurrency:
            self.group_size = trainer.group_size
            self.bell.set()
        if self.group_size != trainer.group_size:
            raise ActorError(
                f"the trainer wants groups of {trainer.group_size}, and this actor has "
                f"group_size={self.options.group_size}, concurrency={self.options.concurrency}; "
                "leave group_size out, and allow at least one group at a time"
            )

    def _upcoming(self, wanted: int) -> list[Task]:
        """Up to `wanted` tasks that are not retired, taken from the iterator."""
        upcoming: list[Task] = []
        # Tasks without end may all be retired: the search stops, so that the actor still can.
        for _ in range(LONGEST_SEARCH):
            if len(upcoming) == wanted:
                break
            task = self.again.popleft() if self.again else next(self.tasks, None)
            if task is None:
                self.ended = True
                break
            if not self.retired or task_key(task) not in self.retired:
                upcoming.append(task)
        return upcoming

    def _drop_stale(self, trainer: TrainerReport) -> None:
        """Cancel the groups that the trainer would discard; `_collect` counts them later."""
        if trainer.max_lag is None:
            return
        # As the trainer will judge them: by the last update made from a batch that begins now.
        oldest = trainer.version + trainer.updates_per_batch - 1 - trainer.max_lag
        for work, (_, version) in self.playing.items():
            if version < oldest:
                work.cancel()

    async def _wait(self, others: set[asyncio.Task[None] | asyncio.Task[bool]], idle: bool) -> None:
        """Wait for a group to end, or until the next report is due."""
        pause_s, bell = self.options.heartbeat_s, asyncio.create_task(self.bell.wait())
        if self._is_paused():
            pause_s = min(pause_s, self.pause_until - asyncio.get_running_loop().time())
        awaited: set[asyncio.Task[Any]] = {*self.playing, *others}
        # Without room left here, only a group that ends can bring some.
        if not (idle and self.playing):
            awaited.add(bell)
        await asyncio.wait(awaited, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        await cancel_all([bell])
        self._collect()

    def _collect(self) -> None:
        """Remove the groups that ended. Raises ActorError, and any error that is no failure."""
        for work in [work for work in self.playing if work.done()]:
            task, _ = self.playing.pop(work)
            # Only `_drop_stale` cancels while the actor runs.
            if work.cancelled():
                self.stale += 1
                self.again.append(task)
                continue
            try:
                work.result()
                self.failures = 0
            except (EpisodeError, ClientError) as error:
                self.again.append(task)
                # All groups that one outage ends are one failure.
                if not self._is_paused():
                    self.failures += 1
                    self._pause(self.failures, "groups", error)

    def _is_paused(self) -> bool:
        """True while no group shall begin, after a failure."""
        return asyncio.get_running_loop().time() < self.pause_until

    def _pause(self, failures: int, what: str, error: Exception) -> float:
        """Begin nothing for some seconds, which are returned.

        Raises ActorError after too many failures.
        """
        if failures > self.options.max_failures:
            raise ActorError(f"{failures} {what} failed in a row, the last: {error}") from error
        delay_s = min(LONGEST_DELAY_S, 0.25 * 2.0**failures)
        self.pause_until = asyncio.get_running_loop().time() + delay_s
        log = logging.getLogger(__name__)
        log.warning("%s failed, next try in %.1f s: %s", what, delay_s, error)
        return delay_s

    async def _play(self, task: Task, *, key: str) -> None:
        """Play one group and push it; cancelled during the push, it may be queued all the same."""
        assert self.group_size is not None
        if self.options.max_turns is not None:
            task = replace(task, max_turns=self.options.max_turns)
        members = [replace(each, group=key) for each in grouped([task], self.group_size)]
        episodes = await self.player.episodes(members)
        if self.record is not None:
            self.record(episodes)
        metrics = episode_metrics(episodes)
        group = RolloutGroup(
            key=key,
            trajectories=tuple(trajectories_from(episodes, self.group_size)),
            actor=self.name,
            metrics=metrics,
        )
        data = group_to_bytes(group)
        await retry(lambda: self.queue.push(key, data))
        self.tokens += int(metrics["tokens/sampled"].value)
        self.pushed += 1

    async def _finish(self) -> None:
        """Let what is being played end, for as long as `grace_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.grace_s):
                while self.playing:
                    # Still alive: else the queue would grant its places to others.
                    await self._reported(wanted=0)
                    await asyncio.wait(self.playing, timeout=self.options.heartbeat_s)
                    self._collect()


async def _ended_before(work: asyncio.Task[bool], stopped: asyncio.Task[bool]) -> bool:
    """True if the work ended first; else it is cancelled, however long its queue is away."""
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return True
    await cancel_all([work])
    return False
