"""The trainer's end of a queue: groups read ahead, judged, given out once, and released."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from ludic_train.errors import BadGroup, EmptyBatch, QueueReset
from ludic_train.metrics import Metrics, Peak, Stat, Total, merge
from ludic_train.pipeline.codec import group_from_bytes
from ludic_train.pipeline.group import SAWGroup, oldest_version
from ludic_train.pipeline.queues.base import (
    REMEMBERED_KEYS,
    Discarded,
    Entry,
    GroupQueue,
    Progress,
    TakenOver,
    Trained,
    TrainerReport,
    persistently,
)
from ludic_train.rows import EMPTY_BATCHES_ALLOWED
from ludic_train.types import SAWItem

T = TypeVar("T")
KeepGroup = Callable[[SAWGroup], bool]
READ_AT_ONCE = 64
QUIET_S = 60.0
LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How a feed reads.

    ahead: groups read and decoded before they are asked for.
    hold: groups that were trained on and stay in the queue until a checkpoint covers them.
    max_attempts: trainers that may die with a group in their batch before it counts as the cause.
    vocab_size: tokens must be below it; None does not look.
    keep: which groups are trained on; None takes all.
    """

    ahead: int
    hold: int
    max_attempts: int
    vocab_size: int | None
    keep: KeepGroup | None


@dataclass(frozen=True, slots=True)
class _Ready:
    entry: Entry
    group: SAWGroup


@dataclass(frozen=True, slots=True)
class Position:
    """The last group that updates were made from, or that had no rows; how many that makes."""

    cursor: str
    trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A batch: its rows, what to log about them, and the groups that they are of."""

    rows: list[SAWItem]
    metrics: Metrics
    trained: tuple[Trained, ...]


class Feed:
    """One reader of a queue; everything here runs in one event loop.

    position: how far it is; another thread may read it at any moment.
    """

    def __init__(self, queue: GroupQueue, trainer: TrainerReport, options: FeedOptions) -> None:
        self.position = Position("", 0)
        self.queue = queue
        self._trainer, self._options = trainer, options
        self._ready: asyncio.Queue[_Ready | Exception] = asyncio.Queue(options.ahead)
        self._owners: dict[str, str] = {}
        self._attempts: Mapping[str, int] = {}
        # Ids that were read and are not settled: after a reset they are read once more.
        self._known: set[str] = set()
        self._batch: tuple[Trained, ...] = ()
        self._held: deque[str] = deque()
        # What the queue has not been told yet: a call that was cancelled is made up for.
        self._untold: list[Trained] = []
        self._leaving: list[str] = []
        self._released_to = ""
        self._covered = 0
        self._counts: Counter[str] = Counter()
        self._kinds: dict[str, str] = {}
        self._reader: asyncio.Task[None] | None = None
        self._reset, self._settling = asyncio.Lock(), asyncio.Lock()
        self._generation = 0

    @property
    def begun(self) -> bool:
        """Whether the queue was taken over."""
        return self._reader is not None

    async def begin(self, version: int) -> None:
        """Take the queue over, to go on after `position`, and start reading."""
        self._released_to, self._covered = self.position.cursor, self.position.trained
        self._trainer = replace(self._trainer, version=version)
        await persistently(self._take_over)
        self._reader = asyncio.create_task(self._read())

    async def batch(self) -> Given:
        """The next groups that are fresh enough; `give` must follow before `settle`.

        Goes on to further ones while none has rows. Raises EmptyBatch after many without.
        """
        parts: list[Metrics] = []
        for _ in range(EMPTY_BATCHES_ALLOWED):
            groups = [await self._fresh() for _ in range(self._trainer.groups_per_batch)]
            lags = [self._lag(ready.group) for ready in groups]
            parts.append(self._metrics(groups, lags))
            trained = tuple(
                Trained(id=ready.entry.id, key=ready.entry.key, lag=lag)
                for ready, lag in zip(groups, lags, strict=True)
            )
            rows = [item for ready in groups for item in ready.group.items]
            if rows:
                await self._ask(partial(self.queue.attempt, [ready.entry for ready in groups]))
                return Given(rows=rows, metrics=merge(parts), trained=trained)
            await self._pass_over(trained)
        raise EmptyBatch(
            f"{EMPTY_BATCHES_ALLOWED} batches of {self._trainer.groups_per_batch} groups without a "
            "row to train on: all earned equal rewards or were filtered. If they earn the best "
            "there is, the task is solved; if not, start from a policy that sometimes does better"
        )

    def give(self, batch: Given) -> None:
        """Note that the trainer has the batch: the next `settle` is about it, too."""
        self._batch += batch.trained

    async def settle(self, version: int) -> None:
        """Note that the last batch is in the params `version`, and release what may go."""
        done, self._batch = self._batch, ()
        if done or self._untold or version != self._trainer.version:
            await self._settle(done, version)

    async def _pass_over(self, groups: tuple[Trained, ...]) -> None:
        """Note that these taught nothing: as groups that wait, they would keep others away."""
        if self._batch:
            # In order: what came before them is not in the params yet.
            self._batch += groups
        else:
            await self._settle(groups, self._trainer.version)

    async def _settle(self, done: tuple[Trained, ...], version: int) -> None:
        self._trainer = replace(self._trainer, version=version)
        self._held += [one.id for one in done]
        self._owners |= {one.key: one.id for one in done}
        if done:
            self.position = Position(done[-1].id, self.position.trained + len(done))
        self._untold += done
        self._leaving += self._releasable()
        async with self._settling:
            progress = Progress(
                trainer=self._trainer,
                held=len(self._held),
                released=self.position.trained - len(self._held),
                trained=tuple(self._untold),
                release=tuple(self._leaving),
            )
            await self._ask(lambda: self.queue.settle(progress))
            del self._untold[: len(progress.trained)], self._leaving[: len(progress.release)]
        self._forget_old_keys()

    def cover(self, trained: int) -> None:
        """Let the first `trained` groups go: a checkpoint covers them."""
        self._covered = max(self._covered, trained)

    async def end(self) -> None:
        """Stop reading and close the queue."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self.queue.aclose()

    def _releasable(self) -> list[str]:
        release, trained = [], self.position.trained
        while self._held and (
            len(self._held) > self._options.hold or trained - len(self._held) < self._covered
        ):
            self._released_to = self._held.popleft()
            self._known.discard(self._released_to)
            release.append(self._released_to)
        return release

    def _lag(self, group: SAWGroup) -> int | None:
        """Updates between the oldest token of a group and the last update made from it."""
        oldest = oldest_version(group.items)
        if oldest is None:
            return None
        last = self._trainer.version + self._trainer.updates_per_batch - 1
        # A run that went back trains on groups of params that it has yet to make again.
        return max(0, last - oldest)

    def _too_old(self, lag: int | None) -> bool:
        limit = self._trainer.max_lag
        return limit is not None and lag is not None and lag > limit

    async def _fresh(self) -> _Ready:
        while True:
            ready = await self._next()
            if not self._too_old(self._lag(ready.group)):
                return ready
            await self._discard(ready.entry, "stale")

    async def _next(self) -> _Ready:
        while True:
            try:
                found = await asyncio.wait_for(self._ready.get(), QUIET_S)
            except TimeoutError:
                logging.getLogger(__name__).warning(
                    "no group came for %.0f s; are there actors, and do groups teach anything? see "
                    "`ludic top`",
                    QUIET_S,
                )
                continue
            if isinstance(found, Exception):
                # Whoever asks again must not wait for a reader that has ended.
                self._ready.put_nowait(found)
                raise found
            return found

    async def _read(self) -> None:
        try:
            while True:
                entries = await self._ask(lambda: self.queue.read(READ_AT_ONCE))
                generation = self._generation
                for entry in entries:
                    # After a reset they will be read once more, in order.
                    if entry.id not in self._known and generation == self._generation:
                        await self._judge(entry)
        except Exception as error:
            while self._ready.full():
                self._ready.get_nowait()
            self._ready.put_nowait(error)

    async def _judge(self, entry: Entry) -> None:
        """Make the entry ready, or discard it for what can be known now."""
        self._known.add(entry.id)
        entry = replace(entry, attempts=self._attempts.get(entry.id, 0))
        if self._owners.get(entry.key, entry.id) != entry.id:
            await self._discard(entry, "duplicate")
            return
        try:
            group = self._decoded(entry)
        except BadGroup as error:
            await self._discard(entry, "dead", _brief(str(error)))
            return
        # From here on, another entry with this key is a duplicate.
        self._owners[entry.key] = entry.id
        if self._options.keep is not None and not self._options.keep(group):
            await self._discard(entry, "filtered")
            return
        await self._ready.put(_Ready(entry, group))

    def _decoded(self, entry: Entry) -> SAWGroup:
        """The entry's group. Raises BadGroup for one that must not be trained on."""
        if entry.attempts >= self._options.max_attempts:
            raise BadGroup(f"{entry.attempts} trainers died with it in their batch")
        group = group_from_bytes(entry.data)
        if group.key != entry.key:
            pushed = _brief(entry.key)
            raise BadGroup(f"it says its key is {group.key!r}, but was pushed as {pushed!r}")
        limit = self._options.vocab_size
        largest = max((int(item.input_ids.max()) for item in group.items), default=-1)
        if limit is not None and largest >= limit:
            raise BadGroup(f"a token id is {largest}; the model has {limit}")
        ageless = bool(group.items) and oldest_version(group.items) is None
        if self._trainer.max_lag is not None and ageless:
            raise BadGroup("its tokens do not say which version sampled them")
        for name, metric in group.metrics.items():
            kind = type(metric).__name__
            if self._kinds.setdefault(name, kind) != kind:
                raise BadGroup(f"its metric {name!r} is a {kind}, elsewhere {self._kinds[name]}")
        return group

    async def _discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        await self._ask(lambda: self.queue.discard(entry, why, reason))
        self._known.discard(entry.id)
        self._counts[why] += 1
        if why == "dead":
            log = logging.getLogger(__name__)
            log.warning("group %r goes to the dead letters: %s", _brief(entry.key), reason)

    def _forget_old_keys(self) -> None:
        """Remember as many keys as the queue does, and those of all groups that wait here."""
        surplus = len(self._owners) - REMEMBERED_KEYS
        oldest = islice(self._owners.items(), max(0, surplus))
        for key, entry_id in list(oldest):
            if entry_id not in self._known:
                del self._owners[key]

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the queue answers, through failures and after a server has forgotten us."""
        while True:
            generation = self._generation
            try:
                return await persistently(call)
            except QueueReset as reset:
                async with self._reset:
                    # Two calls may find out at once; the first takes over for both.
                    if generation == self._generation:
                        logging.getLogger(__name__).warning(
                            "taking the queue over again: %s", reset
                        )
                        await persistently(self._take_over)

    async def _take_over(self) -> None:
        held, released = len(self._held), self.position.trained - len(self._held)
        taken: TakenOver = await self.queue.take_over(
            self._trainer, kept=self._released_to, held=held, released=released
        )
        self._generation += 1
        self._owners |= taken.owners
        self._attempts = taken.attempts
        if taken.lost:
            self._counts["lost"] += taken.lost
            logging.getLogger(__name__).warning(
                "%d groups were trained on after the state that this run goes on from, and are "
                "gone; a larger `hold`, or checkpoints more often, would have kept them",
                taken.lost,
            )

    def _metrics(self, groups: Sequence[_Ready], lags: Sequence[int | None]) -> Metrics:
        known = [lag for lag in lags if lag is not None]
        counts, self._counts = self._counts, Counter()
        names = ("stale", "duplicate", "filtered", "dead", "lost")
        return merge(ready.group.metrics for ready in groups) | {
            "groups": Total(len(groups)),
            **{f"groups/{name}": Total(counts[name]) for name in names},
            "groups/ready": Stat(self._ready.qsize(), 1),
            "lag": Stat.of(known),
            "lag/max": Peak.of(known),
        }


def _brief(text: str) -> str:
    """What anybody wrote, short enough for a log and for a dead letter."""
    return (
        text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    )
