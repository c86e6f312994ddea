"""An actor: plays groups without end and pushes each as soon as it is complete."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from ludic_gym.errors import ClientError, ConfigError, EpisodeError
from ludic_gym.rollout.episodes import env_pool, run_episodes
from ludic_gym.rollout.groups import grouped
from ludic_gym.rollout.pool import EnvPool
from ludic_gym.types import Env, MakePolicy, Rollout, Task
from ludic_train.algorithms.batch_credit import (
    BatchCenteredReturn,
    SeatBaselineReturn,
    TokenWhitenedReturn,
)
from ludic_train.algorithms.credit import HybridNormalizedReturn
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import ActorError, QueueUnavailable
from ludic_train.metrics import Metrics, Stat, merge
from ludic_train.pipeline.codec import group_to_bytes
from ludic_train.pipeline.group import SAWGroup
from ludic_train.pipeline.queues.base import (
    ActorReport,
    Admission,
    GroupQueue,
    TrainerReport,
    persistently,
)
from ludic_train.rows import episode_metrics, items_from, require_trainable, survivors
from ludic_train.types import REWARDS

# Looks for newer params and loads them; the version that is sampled from afterwards, None if the
# trainer has published none yet.
Refresh = Callable[[], Awaitable[int | None]]
# These compare rollouts of different groups, and an actor never sees a whole batch.
BATCH_WIDE = (
    BatchCenteredReturn,
    HybridNormalizedReturn,
    SeatBaselineReturn,
    TokenWhitenedReturn,
)
POLL_S, LONGEST_DELAY_S = 0.05, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """How an actor plays.

    concurrency: episodes at once; whole groups of them are begun.
    max_turns: of an episode, instead of its task's. timeout_s: the longest an episode may take.
    beat_s: seconds between two signs of life.
    grace_s: how long groups that are being played may go on when the actor is asked to stop.
    max_failures: groups in a row that may fail, or looks for newer params, with growing pauses,
        before the actor gives up; groups that end in the same pause fail once.
    zstd_level: compresses groups; None sends them as they are.
    """

    group_size: int = 8
    concurrency: int = 64
    max_turns: int | None = None
    timeout_s: float | None = None
    beat_s: float = 1.0
    grace_s: float = 30.0
    max_failures: int = 8
    zstd_level: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.group_size <= self.concurrency:
            raise ConfigError(
                f"concurrency={self.concurrency} with group_size={self.group_size}; an actor plays "
                "at least one whole group at a time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSummary:
    """What an actor did: groups pushed, left without rows by filters, given up as stale.

    returned: tasks that were taken and not finished.
    """

    pushed: int
    unused: int
    stale: int
    returned: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class _Playing:
    task: Task
    version: int


async def run_pipeline_actor(
    tasks: Iterator[Task],
    make_policy: MakePolicy,
    algo: RLAlgorithm,
    queue: GroupQueue,
    refresh: Refresh,
    options: ActorOptions | None = None,
    *,
    name: str | None = None,
    stop: asyncio.Event | None = None,
) -> ActorSummary:
    """Play `tasks` in groups for the trainer that reads `queue`, until `stop` is set or they end.

    algo: its filter and its credit assigner are applied here, to each group by itself. A group that
        the filter leaves nothing of counts in its batch all the same, unless `algo.full_batches`
        has it replaced.
    refresh: called all the time, for the version that new groups will be sampled from.
    name: how `ludic top` shows the actor.
    A group begins only when the queue admits it, so that it cannot come too late unless others
    overtake it; one that has become too old is given up, and its task played again. Clients and
    queues that fail are tried again, less and less often.
    Raises ActorError after too many failures in a row, QueueError for a queue that does not
    come back, and ConfigError for a credit assigner that compares groups with each other.
    """
    _refuse_batch_wide(algo)
    actor = _Actor(tasks, make_policy, algo, queue, refresh, options or ActorOptions(), name)
    return await actor.run(stop or asyncio.Event())


class _Actor:
    def __init__(
        self,
        tasks: Iterator[Task],
        make_policy: MakePolicy,
        algo: RLAlgorithm,
        queue: GroupQueue,
        refresh: Refresh,
        options: ActorOptions,
        name: str | None,
    ) -> None:
        self.tasks, self.make_policy, self.algo = tasks, make_policy, algo
        self.queue, self.refresh, self.options = queue, refresh, options
        # Keys must never come again, not even after a restart under the same name.
        self.run_id = secrets.token_hex(6)
        self.name = name or f"{socket.gethostname()}-{self.run_id}"
        self.envs: EnvPool[Env] = env_pool(max_idle=options.concurrency)
        self.playing: dict[asyncio.Task[None], _Playing] = {}
        self.again: deque[Task] = deque()
        self.version: int | None = None
        self.begun = self.pushed = self.unused = self.stale = self.tokens = 0
        self.failures, self.pause_until = 0, 0.0
        self.carried: Metrics = {}
        self.ended = False

    async def run(self, stop: asyncio.Event) -> ActorSummary:
        refreshing = asyncio.create_task(self._keep_refreshing())
        stopped = asyncio.create_task(stop.wait())
        try:
            while not (stop.is_set() or (self.ended and not self.playing and not self.again)):
                beginning = asyncio.create_task(self._begin_groups())
                if not await _ended_before(beginning, stopped):
                    break
                await self._wait({refreshing, stopped}, beginning.result())
                if refreshing.done():
                    refreshing.result()
            await self._finish()
        finally:
            for task in (refreshing, stopped, *self.playing):
                task.cancel()
            await asyncio.gather(refreshing, stopped, *self.playing, return_exceptions=True)
            self.envs.close()
            # A queue that is gone forgets the actor by itself.
            with suppress(QueueUnavailable):
                await self.queue.leave(self.name)
        return self._summary()

    async def _keep_refreshing(self) -> None:
        """Keep `version` up to date; raises what is no failure of a client."""
        failures, delay_s = 0, POLL_S
        while True:
            try:
                self.version = await self.refresh()
                failures, delay_s = 0, POLL_S
            except ClientError as error:
                failures += 1
                delay_s = self._pause(failures, "looks for newer params", error)
            await asyncio.sleep(delay_s)

    async def _begin_groups(self) -> bool:
        """Report, and begin as many groups as are admitted; whether all wanted ones were."""
        free = self.options.concurrency // self.options.group_size - len(self.playing)
        version = self.version
        upcoming = [] if self._is_paused() or version is None else self._upcoming(free)
        try:
            admission = await self._say(wanted=len(upcoming))
        except asyncio.CancelledError:
            self.again.extendleft(reversed(upcoming))
            raise
        for task in upcoming[: admission.granted]:
            self._begin(task, version or 0)
        self.again.extendleft(reversed(upcoming[admission.granted :]))
        if admission.trainer is not None:
            self._give_up_stale(admission.trainer)
        return admission.granted == free

    async def _say(self, *, wanted: int) -> Admission:
        report = self._report()
        return await persistently(lambda: self.queue.admit(report, wanted))

    def _upcoming(self, wanted: int) -> list[Task]:
        found: list[Task] = []
        while len(found) < wanted:
            task = self.again.popleft() if self.again else next(self.tasks, None)
            if task is None:
                self.ended = True
                break
            found.append(task)
        return found

    def _begin(self, task: Task, version: int) -> None:
        self.begun += 1
        key = f"{self.run_id}:{self.begun}"
        self.playing[asyncio.create_task(self._play(task, key))] = _Playing(task, version)

    def _give_up_stale(self, trainer: TrainerReport) -> None:
        if trainer.max_lag is None:
            return
        oldest = trainer.version + trainer.updates_per_batch - 1 - trainer.max_lag
        for work, playing in self.playing.items():
            if playing.version < oldest:
                work.cancel()

    async def _wait(self, others: set[asyncio.Task[None] | asyncio.Task[bool]], idle: bool) -> None:
        """Wait for a group to end, or until it is time to report or to ask again."""
        pause_s = self.options.beat_s if idle and self.playing else POLL_S
        awaited: set[asyncio.Task[None] | asyncio.Task[bool]] = {*self.playing, *others}
        await asyncio.wait(awaited, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> None:
        for work in [work for work in self.playing if work.done()]:
            playing = self.playing.pop(work)
            if work.cancelled():
                self.stale += 1
                self.again.append(playing.task)
                continue
            try:
                work.result()
            except (EpisodeError, ClientError) as error:
                self.again.append(playing.task)
                self._failed(error)
            else:
                self.failures = 0

    def _is_paused(self) -> bool:
        return asyncio.get_running_loop().time() < self.pause_until

    def _failed(self, error: Exception) -> None:
        # All groups that one outage ends are one failure.
        if not self._is_paused():
            self.failures += 1
            self._pause(self.failures, "groups", error)

    def _pause(self, failures: int, what: str, error: Exception) -> float:
        """Begin nothing for a while; the seconds. Raises ActorError after too many failures."""
        if failures > self.options.max_failures:
            raise ActorError(f"{failures} {what} failed in a row, the last: {error}") from error
        delay_s = min(LONGEST_DELAY_S, 0.25 * 2.0**failures)
        self.pause_until = asyncio.get_running_loop().time() + delay_s
        log = logging.getLogger(__name__)
        log.warning("%s failed, going on in %.1f s: %s", what, delay_s, error)
        return delay_s

    async def _play(self, task: Task, key: str) -> None:
        """Play one group and push it, without rows where it teaches nothing."""
        if self.options.max_turns is not None:
            task = replace(task, max_turns=self.options.max_turns)
        size = self.options.group_size
        members = (replace(each, group=key) for each in grouped([task], size))
        playing = run_episodes(
            members,
            self.make_policy,
            concurrency=size,
            timeout_s=self.options.timeout_s,
            envs=self.envs,
        )
        episodes = sorted([each async for each in playing], key=lambda each: each.index)
        rollouts = survivors(episodes, size)
        require_trainable(rollouts)
        kept = self.algo.preprocess(rollouts) if self.algo.preprocess else rollouts
        metrics = episode_metrics(episodes)
        metrics["rollouts/kept"] = Stat(len(kept), len(rollouts))
        self.tokens += int(metrics["tokens/sampled"].value)
        self.unused += not kept
        # What is said of groups that are replaced goes with the next that is pushed.
        self.carried = merge([self.carried, metrics])
        if not kept and self.algo.full_batches:
            return
        group, self.carried = self._group(key, kept), {}
        data = group_to_bytes(group, zstd_level=self.options.zstd_level)
        await persistently(lambda: self.queue.push(key, data))
        self.pushed += 1

    def _group(self, key: str, kept: list[Rollout]) -> SAWGroup:
        weights = self.algo.credit_assigner(kept) if kept else []
        items = items_from(kept, weights, rewards=REWARDS in self.algo.attach)
        return SAWGroup(key=key, items=tuple(items), actor=self.name, metrics=self.carried)

    async def _finish(self) -> None:
        """Let what is being played end, for as long as `grace_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.grace_s):
                while self.playing:
                    await self._say(wanted=0)
                    await asyncio.wait(self.playing, timeout=self.options.beat_s)
                    self._collect()

    def _report(self) -> ActorReport:
        return ActorReport(
            name=self.name,
            running=len(self.playing),
            version=self.version or 0,
            groups=self.pushed,
            tokens=self.tokens,
            unused=self.unused,
        )

    def _summary(self) -> ActorSummary:
        unfinished = [playing.task for playing in self.playing.values()]
        return ActorSummary(
            pushed=self.pushed,
            unused=self.unused,
            stale=self.stale,
            returned=(*unfinished, *self.again),
        )


async def _ended_before(work: asyncio.Task[bool], stopped: asyncio.Task[bool]) -> bool:
    """Whether the work ended first; else it is cancelled, however long its queue is away."""
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return True
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return False


def _refuse_batch_wide(algo: RLAlgorithm) -> None:
    if isinstance(algo.credit_assigner, BATCH_WIDE):
        raise ConfigError(
            f"{algo.name} compares the rollouts of a whole batch "
            f"({type(algo.credit_assigner).__name__}), and an actor sees one group; use credit "
            "within groups, as make_grpo, make_rloo and make_dapo do"
        )
