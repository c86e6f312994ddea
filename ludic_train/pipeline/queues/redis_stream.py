"""A queue in Redis 6.2 or later, or Valkey: a stream, and a consumer group for its one reader.

Keys of the queue KEY: `{KEY}:groups`, the stream; `{KEY}:dead`, the stream of dead letters;
`{KEY}:state`, `:counts`, `:lags`, `:owners`, `:order`, `:attempts`, `:actors`, `:running`,
`:retired`, `:retired_set`, and `{KEY}:alive:NAME`, which lives as long as its actor reports.
The braces put all keys of a queue on one node of a cluster, where scripts need them.
`redis_scripts` has the meaning of each key and the invariants between them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from redis.exceptions import NoPermissionError

from ludic_train.errors import QueueError, QueueReset, QueueUnavailable
from ludic_train.pipeline.queues import redis_scripts
from ludic_train.pipeline.queues.base import (
    DEAD_HEAD,
    DEAD_LETTERS,
    MAX_QUEUED,
    REMEMBERED_KEYS,
    RETIRED_AT_ONCE,
    ActorReport,
    Admission,
    DeadLetter,
    Discarded,
    Entry,
    Progress,
    QueueStatus,
    TakenOver,
    TrainerReport,
    WhenFull,
    check_batch_fits,
    check_room,
    until_room,
)
from ludic_train.pipeline.queues.redis_connection import answered, connected

# An actor that reports no more is dead after ALIVE_MS, and its places go to others.
READ_WAIT_MS, ALIVE_MS = 1_000, 15_000
# An actor that found room takes one in this many places before it looks again.
ROOM_SHARE = 32
# A server that is paused or unreachable must not keep a caller for ever.
TIMEOUT_S = 10.0
PARTS = ["groups", "dead", "state", "counts", "lags"]
PARTS += ["owners", "order", "attempts", "actors", "running", "retired", "retired_set"]
TRAINER = tuple(TrainerReport.__dataclass_fields__)


class RedisQueue:
    """The queue `key` of the Redis at `url`; one object serves one event loop.

    url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS, or `unix:///path`; the
        options of redis-py may follow, such as `?ssl_ca_certs=ca.pem`.
    max_queued: groups that may wait for the trainer; a few more where several actors push at the
        same moment.
    when_full: "block" makes `push` wait then; "drop-oldest" drops the oldest group that was not
        read yet.

        queue = RedisQueue("redis://localhost:6379", "my-run")
        source = PipelineBatchSource(queue, groups_per_batch=32, group_size=8)

    Raises QueueError for a bad URL and ConfigError for a bad size; the server is first needed by
    the first call.
    """

    def __init__(
        self, url: str, key: str, *, max_queued: int = MAX_QUEUED, when_full: WhenFull = "block"
    ) -> None:
        check_room(max_queued, when_full)
        self._max_queued, self._when_full = max_queued, when_full
        self._timeout_s = TIMEOUT_S
        self._redis = connected(url, self._timeout_s)
        self._names = {part: f"{{{key}}}:{part}" for part in PARTS}
        self._alive = f"{{{key}}}:alive:"
        self._epoch = 0
        # After a read whose response was lost, the entries that it delivered are read once more.
        self._last_read, self._again = "0-0", False
        # New entries of a server that forgot the queue must not get ids that were read before.
        self._newest = "0-0"
        self._may_push = 0

    async def admit(self, report: ActorReport, wanted: int) -> Admission:
        """As GroupQueue."""
        text = json.dumps(asdict(report))
        arguments = [self._alive, report.name, text, report.running, report.version, wanted]
        arguments += [ALIVE_MS, self._max_queued, report.retired, RETIRED_AT_ONCE]
        # One script for report and grant, so that two actors never get the same place.
        names = ["groups", "state", "actors", "running", "retired"]
        found = await self._run(redis_scripts.ADMIT, names, arguments)
        if len(found) == 1:
            return Admission(granted=0, trainer=None)
        trainer = _trainer(found[1:6])
        check_batch_fits(trainer, self._max_queued)
        retired = tuple(name.decode(errors="replace") for name in found[6])
        return Admission(granted=int(found[0]), trainer=trainer, retired=retired)

    async def push(self, key: str, data: bytes) -> None:
        """As GroupQueue."""
        if self._when_full == "drop-oldest":
            await self._push_and_drop(key, data)
            return
        # Places that were free at the last look; other actors may have taken some since.
        if self._may_push <= 0:
            room = await until_room(self._room)
            # A request for room before every push would cost as much as the push; others push too.
            self._may_push = 1 + room // ROOM_SHARE
        async with answered(self._timeout_s):
            await self._redis.xadd(self._names["groups"], {"k": key, "d": data})
        self._may_push -= 1

    async def _push_and_drop(self, key: str, data: bytes) -> None:
        """Append a group and drop what is too much, in one transaction."""
        # Two commands would let a crash between them leave the queue above its limit.
        keys = [self._names[name] for name in ("groups", "state", "counts")]
        async with answered(self._timeout_s), self._redis.pipeline(transaction=True) as pipe:
            pipe.xadd(self._names["groups"], {"k": key, "d": data})
            pipe.eval(redis_scripts.DROP_OLDEST, len(keys), *keys, self._max_queued)
            await pipe.execute()

    async def leave(self, name: str) -> None:
        """As GroupQueue."""
        async with answered(self._timeout_s), self._redis.pipeline(transaction=True) as pipe:
            pipe.hdel(self._names["running"], name)
            pipe.hdel(self._names["actors"], name)
            pipe.delete(self._alive + name)
            await pipe.execute()

    async def take_over(
        self, trainer: TrainerReport, *, kept: str, held: int, released: int
    ) -> TakenOver:
        """As GroupQueue."""
        check_batch_fits(trainer, self._max_queued)
        newest = max(kept or "0-0", self._newest, key=_parts)
        await self._refuse_eviction()
        arguments = [_after(kept) if kept else "", held, released, newest]
        for name, value in asdict(trainer).items():
            arguments += [name, "" if value is None else value]
        self._epoch, lost = await self._run(
            redis_scripts.TAKE_OVER, ["groups", "state", "counts"], arguments
        )
        # The new consumer group has delivered nothing yet.
        self._last_read, self._again = "0-0", False
        # After the script: this reader is the only one that changes these from now on.
        # A server whose memory is full refuses transactions, even those that only read.
        async with answered(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._names["owners"])
            pipe.hgetall(self._names["attempts"])
            owners, attempts = await pipe.execute()
        return TakenOver(
            owners=_texts(owners),
            attempts={i: int(n) for i, n in _texts(attempts).items()},
            lost=lost,
        )

    async def read(self, count: int) -> list[Entry]:
        """As GroupQueue."""
        start = self._last_read if self._again else ">"
        # Until a response arrives, the entries that this read delivers count as lost on the way.
        again, self._again = self._again, True
        found = await self._read(start, count)
        # All that was delivered before has been read again: now the new entries.
        if again and not found:
            self._again = False
            return await self.read(count)
        self._again = again
        if found:
            self._last_read = found[-1][0].decode()
            self._newest = max(self._newest, self._last_read, key=_parts)
        # An entry that was removed after it was delivered comes back without fields.
        return [_entry(entry_id, fields) for entry_id, fields in found if fields]

    async def attempt(self, entries: Sequence[Entry]) -> None:
        """As GroupQueue."""
        arguments: list[Any] = [self._epoch]
        for entry in entries:
            arguments += [entry.id, entry.attempts + 1]
        await self._run(redis_scripts.ATTEMPT, ["groups", "state", "attempts"], arguments)

    async def settle(self, progress: Progress) -> None:
        """As GroupQueue."""
        arguments: list[Any] = [self._epoch, progress.trainer.version, progress.held]
        arguments += [progress.released, REMEMBERED_KEYS]
        arguments += [len(progress.trained), len(progress.retired)]
        for done in progress.trained:
            arguments += [done.id, done.key, "" if done.lag is None else done.lag]
        names = ["groups", "state", "lags", "owners", "order", "attempts", "retired", "retired_set"]
        arguments += progress.retired
        await self._run(redis_scripts.SETTLE, names, [*arguments, *progress.release])

    async def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """As GroupQueue."""
        # Cut, because key and data are an actor's, and a thousand dead letters stay.
        names = ["groups", "state", "counts", "owners", "order", "attempts", "dead"]
        arguments = [self._epoch, entry.id, entry.key[:DEAD_HEAD], why, reason[:DEAD_HEAD]]
        arguments += [len(entry.data), entry.data[:DEAD_HEAD] if why == "dead" else b""]
        arguments += [DEAD_LETTERS]
        await self._run(redis_scripts.DISCARD, names, arguments)

    async def status(self) -> QueueStatus:
        """As GroupQueue."""
        # No script: a glance must not hold up those who work, and may be a little inconsistent.
        async with answered(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.xlen(self._names["groups"])
            for name in ("state", "counts", "lags", "actors"):
                pipe.hgetall(self._names[name])
            length, *hashes = await pipe.execute()
            state, counts, lags, actors = map(_texts, hashes)
            pending = await self._pending(state.get("epoch"))
            alive = [n for n in actors if await self._redis.exists(self._alive + n)]
        held, released = int(state.get("held", 0)), int(state.get("released", 0))
        trainer = [state[name] for name in TRAINER if name in state]
        return QueueStatus(
            queued=max(0, length - held),
            pending=max(0, pending - held),
            held=held,
            counts={"trained": held + released, **{n: int(c) for n, c in counts.items()}},
            lags={int(lag): int(c) for lag, c in sorted(lags.items(), key=lambda x: int(x[0]))},
            actors=[ActorReport(**json.loads(actors[name])) for name in sorted(alive)],
            trainer=_trainer(trainer) if trainer else None,
        )

    async def dead_letters(self) -> list[DeadLetter]:
        """As GroupQueue."""
        async with answered(self._timeout_s):
            found: Any = await self._redis.xrevrange(self._names["dead"], count=DEAD_LETTERS)
        return [_dead_letter(fields) for _, fields in reversed(found)]

    async def aclose(self) -> None:
        """As GroupQueue."""
        # Over TLS, a server that is silent says no goodbye; nothing is lost by that.
        with suppress(QueueUnavailable):
            async with answered(self._timeout_s):
                await self._redis.aclose()

    async def _room(self) -> int:
        """Groups that there is room for; 0 or less where the queue is full."""
        async with answered(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.xlen(self._names["groups"])
            pipe.hget(self._names["state"], "held")
            length, held = await pipe.execute()
        return int(self._max_queued - (length - int(held or 0)))

    async def _pending(self, epoch: str | None) -> int:
        """Groups that were read and not released; 0 before any takeover."""
        # XINFO of a stream that does not exist is an error.
        if epoch is None or not await self._redis.exists(self._names["groups"]):
            return 0
        groups = await self._redis.xinfo_groups(self._names["groups"])
        return sum(int(group["pending"]) for group in groups)

    async def _refuse_eviction(self) -> None:
        """Raise QueueError where the server may remove groups to make room for other keys."""
        try:
            async with answered(self._timeout_s):
                memory: Any = await self._redis.info("memory")
        except QueueError as error:
            # A user with few rights may not read this; the queue works for it all the same.
            if not isinstance(error.__cause__, NoPermissionError):
                raise
            logging.getLogger(__name__).warning("whether Redis evicts groups is unknown: %s", error)
            return
        policy = str(memory.get("maxmemory_policy", ""))
        if memory.get("maxmemory") and policy.startswith("allkeys"):
            raise QueueError(
                f"maxmemory-policy={policy}: this Redis removes groups when its memory is full; "
                "set maxmemory-policy noeviction, so that actors wait instead"
            )

    async def _read(self, start: str, count: int) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        """Ids and fields: new entries for `start` ">", else those delivered before, after it."""
        try:
            async with answered(self._timeout_s):
                found: Any = await self._redis.xreadgroup(
                    f"trainer-{self._epoch}",
                    "trainer",
                    {self._names["groups"]: start},
                    count=count,
                    block=READ_WAIT_MS if start == ">" else None,
                )
        except QueueReset:
            # A reader that takes over removes the consumer groups before, which looks like a reset.
            await self.attempt([])
            raise
        entries: list[tuple[bytes, Mapping[bytes, bytes]]] = found[0][1] if found else []
        return entries

    async def _run(self, script: str, names: Sequence[str], arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Result of a script, which the server knows by its hash after the first run."""
        keys = [self._names[name] for name in names]
        async with answered(self._timeout_s):
            return await self._redis.register_script(script)(keys=keys, args=arguments)


def _entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    key = fields.get(b"k", b"").decode(errors="replace")
    return Entry(id=entry_id.decode(), key=key, data=fields.get(b"d", b""))


def _dead_letter(fields: Mapping[bytes, bytes]) -> DeadLetter:
    text = {name: fields[name.encode()].decode(errors="replace") for name in ("id", "key")}
    reason = fields[b"reason"].decode(errors="replace")
    return DeadLetter(**text, reason=reason, size=int(fields[b"size"]), head=fields[b"head"])


def _after(entry_id: str) -> str:
    """The smallest id that is greater."""
    milliseconds, sequence = _parts(entry_id)
    return f"{milliseconds}-{sequence + 1}"


def _parts(entry_id: str) -> tuple[int, int]:
    """Milliseconds and sequence number of an id. Raises QueueError for one of another queue."""
    # Ids are compared by these: as text, "9-0" would come after "10-0".
    milliseconds, _, sequence = entry_id.partition("-")
    if not (milliseconds.isdigit() and sequence.isdigit()):
        raise QueueError(
            f"the checkpoint continues after the entry {entry_id!r}, which is none of a Redis; "
            "resume with the kind of queue that the run learned from"
        )
    return int(milliseconds), int(sequence)


def _texts(found: Mapping[bytes, bytes]) -> dict[str, str]:
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in found.items()}


def _trainer(values: Sequence[str | bytes]) -> TrainerReport:
    """The report from the values of its fields."""
    numbers = [int(value) if value else None for value in values]
    found: dict[str, Any] = dict(zip(TRAINER, numbers, strict=True))
    return TrainerReport(**found)
