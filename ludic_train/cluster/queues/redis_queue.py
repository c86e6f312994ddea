"""A queue in Redis 6.2 or later, or Valkey: a stream, and one reader of it.

Keys of the queue KEY: `{KEY}:groups`, the stream; `{KEY}:dead`, the stream of dead letters;
`{KEY}:state`, `:reader`, `:counts`, `:lags`, `:owners`, `:order`, `:attempts`, `:actors`,
`:running`, `:retired`, `:retired_set`, and `{KEY}:alive:NAME`, which lives as long as its actor
reports.
The braces put all keys of a queue on one node of a cluster, where scripts need them.
`redis_scripts` has the meaning of each key and the invariants between them.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import dropwhile
from typing import Any

import msgspec

from ludic_train.cluster.queues import redis_scripts
from ludic_train.cluster.queues.base import (
    DEAD_HEAD,
    DEAD_LETTERS,
    MAX_QUEUED,
    READER_ALIVE_S,
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
    check_batch_fits,
    check_room,
    id_order,
)
from ludic_train.cluster.queues.redis_connection import check_server, redis_call, redis_client
from ludic_train.cluster.queues.retry import seize, wait_for_room
from ludic_train.errors import QueueError, QueueUnavailable

TRAINER = tuple(TrainerReport.__dataclass_fields__)


def entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry of the stream; an empty key and no data where a stranger left out the fields."""
    key = fields.get(b"k", b"").decode(errors="replace")
    return Entry(id=entry_id.decode(), key=key, data=fields.get(b"d", b""))


def dead_letter(fields: Mapping[bytes, bytes]) -> DeadLetter:
    """A dead letter from its entry."""
    named = {name: fields[name.encode()].decode(errors="replace") for name in ("id", "key")}
    reason = fields[b"reason"].decode(errors="replace")
    return DeadLetter(**named, reason=reason, size=int(fields[b"size"]), head=fields[b"head"])


def trainer_report(values: Sequence[str | bytes]) -> TrainerReport:
    """The report from the values of its fields, the levels last."""
    *numbers, levels = values
    named: dict[str, Any] = dict(
        zip(TRAINER, (int(number) if number else None for number in numbers), strict=False)
    )
    text = levels.decode() if isinstance(levels, bytes) else levels
    return TrainerReport(**{**named, "levels": text})


def texts(pairs: Mapping[bytes, bytes]) -> dict[str, str]:
    """A hash as text."""
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in pairs.items()}


def following(entry_id: str) -> str:
    """The smallest id that is greater. Raises QueueError for an id of another kind of queue."""
    milliseconds, _, sequence = entry_id.partition("-")
    if not (milliseconds.isdigit() and sequence.isdigit()):
        raise QueueError(
            f"the checkpoint continues after the entry {entry_id!r}, which is none of a Redis; "
            "resume with the kind of queue that the run learned from"
        )
    return f"{milliseconds}-{int(sequence) + 1}"


# An actor that reports no more is dead after ALIVE_MS, and its places go to others.
READ_WAIT_MS, ALIVE_MS, WAKE_WAIT_S = 1_000, 15_000, 5
# A server that is paused or unreachable must not keep a caller for ever. Groups get longer, by
# the slowest link that a queue is meant for; a read gets twice as long after one that failed.
TIMEOUT_S, SLOWEST = 10.0, 250e3
# One read brings so many bytes, or as many as come within a quarter of its limit.
READ_BYTES, LONGEST_READ_S = 4 * 2**20, 320.0
PARTS = ["groups", "dead", "state", "reader", "counts", "lags"]
PARTS += ["owners", "order", "attempts", "actors", "running", "leases", "waiting"]
PARTS += ["retired", "retired_set"]
# Keys of the scripts in `redis_scripts`.
ACTORS = ["groups", "state", "actors", "running", "leases", "waiting"]
_PACKED = msgspec.msgpack.Encoder()


class RedisQueue:
    """The queue `key` of the Redis at `url`; one object serves one event loop.

    url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS, or `unix:///path`; the
        options of redis-py may follow, such as `?ssl_ca_certs=ca.pem`.
    max_queued: groups that may wait for the trainer; a few more where several actors push at the
        same moment. `push` waits while there is no room.

        queue = RedisQueue("redis://localhost:6379", "my-run")
        source = PipelineBatchSource(queue, groups_per_batch=32, group_size=8)

    Raises QueueError for a bad URL and ConfigError for a bad size; the server is first needed by
    the first call.
    """

    def __init__(self, url: str, key: str, *, max_queued: int = MAX_QUEUED) -> None:
        check_room(max_queued)
        self._max_queued = max_queued
        self._timeout_s = TIMEOUT_S
        self._redis = redis_client(url, self._timeout_s)
        self._names = {part: f"{{{key}}}:{part}" for part in PARTS}
        self._wake_prefix = f"{{{key}}}:wake:"
        # What the fence of the scripts compares, see `redis_scripts`.
        self._name, self._epoch, self._calls = secrets.token_hex(8), 0, 0
        self._settled = 0
        # The last entry that was read, and the boundary: they differ after a reset, when all is
        # read again. New entries of a server that forgot the queue get ids after the boundary.
        self._last_read = self._boundary = "0-0"
        # Entries that one read should bring, and its limit, by how long the last one took.
        self._at_once, self._read_limit_s = 1, self._timeout_s

    async def admit(self, report: ActorReport, wanted: int) -> Admission:
        """As GroupQueue."""
        arguments = [report.name, json.dumps(asdict(report)), report.running, report.version]
        arguments += [wanted, ALIVE_MS, report.retired, RETIRED_AT_ONCE]
        # One script for report and grant, so that two actors never get the same place.
        answer = await self._of_actors(redis_scripts.ADMIT, *arguments, further=["retired"])
        if len(answer) == 1:
            return Admission(granted=0, trainer=None)
        trainer = trainer_report(answer[1:7])
        check_batch_fits(trainer, self._max_queued)
        retired = tuple(name.decode(errors="replace") for name in answer[7])
        return Admission(granted=int(answer[0]), trainer=trainer, retired=retired)

    async def push(self, key: str, data: bytes) -> None:
        """As GroupQueue."""
        await wait_for_room(self._room)
        async with redis_call(self._timeout_s + len(data) / SLOWEST):
            await self._redis.xadd(self._names["groups"], {"k": key, "d": data})

    async def leave(self, name: str) -> None:
        """As GroupQueue."""
        await self._of_actors(redis_scripts.LEAVE, name)

    async def woken(self, name: str) -> bool:
        """As GroupQueue."""
        async with redis_call(self._timeout_s):
            signal: Any = await self._redis.blpop([self._wake_prefix + name], WAKE_WAIT_S)
        return signal is not None

    async def claim(self) -> None:
        """As GroupQueue."""
        arguments = [self._epoch, self._name, _ms(READER_ALIVE_S)]
        names = ["groups", "state", "reader"]

        async def once() -> list[int] | None:
            return await self._run(redis_scripts.CLAIM, names, arguments) or None

        self._epoch, self._calls = await seize(once)

    async def take_over(
        self,
        trainer: TrainerReport,
        *,
        kept: str,
        total: int,
        held: Sequence[str] = (),
        waiting: Sequence[str] = (),
    ) -> TakenOver:
        """As GroupQueue."""
        check_batch_fits(trainer, self._max_queued)
        first = following(kept) if kept else ""
        # Its group begins after all that the reader has.
        boundary = max([kept or "0-0", *held, *waiting], key=id_order)
        newest = max(boundary, self._boundary, key=id_order)
        await check_server(self._redis, self._timeout_s)
        arguments: list[Any] = [self._epoch, self._name, _ms(READER_ALIVE_S), first, total, newest]
        arguments += [boundary, _PACKED.encode((held, waiting))]
        for name, value in asdict(trainer).items():
            arguments += [name, "" if value is None else value]
        names = ["groups", "state", "reader", "counts"]

        async def once() -> list[Any] | None:
            return await self._run(redis_scripts.TAKE_OVER, names, arguments) or None

        self._epoch, self._calls, lost, forgot, there = await seize(once)
        self._last_read, self._boundary, self._settled = kept or "0-0", boundary, 0
        await self._of_actors(redis_scripts.WAKE)
        # After the script: this reader is the only one that changes these from now on.
        # A server whose memory is full refuses transactions, even those that only read.
        async with redis_call(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._names["owners"])
            pipe.hgetall(self._names["attempts"])
            owners, attempts = await pipe.execute()
        return TakenOver(
            owners=texts(owners),
            attempts={i: int(n) for i, n in texts(attempts).items()},
            lost=lost,
            forgot=bool(forgot),
            there=frozenset(each.decode() for each in there),
        )

    async def beat(self) -> None:
        """As GroupQueue."""
        await self._fenced(redis_scripts.BEAT, ["groups", "state", "reader"], _ms(READER_ALIVE_S))

    async def read(self, count: int) -> list[Entry]:
        """As GroupQueue."""
        epoch = self._epoch
        # Nothing in the server changes by this: where its response is lost, it is made again.
        entries = await self._read(count)
        # Taken over meanwhile, by another call that met a reset: all is to be read again, and the
        # boundary of the new epoch stays.
        if epoch != self._epoch:
            return []
        last = entries[-1].id if entries else self._last_read
        boundary = max(self._boundary, last, key=id_order)
        # Ids ascend, so one look says it for all but the entries of a reset.
        seen = id_order(self._boundary)
        new = [e.id for e in dropwhile(lambda e: id_order(e.id) <= seen, entries)]
        packed = _PACKED.encode(new)
        await self._fenced(redis_scripts.READ, ["groups", "state"], boundary, packed)
        # Likewise.
        if epoch != self._epoch:
            return []
        self._last_read, self._boundary = last, boundary
        return entries

    async def attempt(self, entries: Sequence[Entry]) -> None:
        """As GroupQueue."""
        arguments = [x for each in entries for x in (each.id, each.attempts + 1)]
        await self._fenced(redis_scripts.ATTEMPT, ["groups", "state", "attempts"], *arguments)

    async def settle(self, progress: Progress) -> None:
        """As GroupQueue."""
        self._settled += 1
        arguments: list[Any] = [self._settled, progress.trainer.version, progress.held]
        arguments += [progress.total, progress.apart, REMEMBERED_KEYS, progress.trainer.levels]
        trained = [
            (done.id, done.key, "" if done.lag is None else done.lag) for done in progress.trained
        ]
        arguments.append(_PACKED.encode((trained, progress.retired, progress.release)))
        names = ["groups", "state", "lags", "owners", "order", "attempts", "retired", "retired_set"]
        await self._fenced(redis_scripts.SETTLE, names, *arguments)
        await self._of_actors(redis_scripts.WAKE)

    async def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """As GroupQueue."""
        # Cut, because key and data are an actor's, and a thousand dead letters stay.
        arguments = [entry.id, entry.key[:DEAD_HEAD], why, reason[:DEAD_HEAD], len(entry.data)]
        arguments += [entry.data[:DEAD_HEAD] if why == "dead" else b"", DEAD_LETTERS]
        names = ["groups", "state", "counts", "owners", "order", "attempts", "dead"]
        await self._fenced(redis_scripts.DISCARD, names, *arguments)
        await self._of_actors(redis_scripts.WAKE)

    async def status(self) -> QueueStatus:
        """As GroupQueue."""
        # No script: a glance must not hold up those who work, and may be a little inconsistent.
        async with redis_call(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.xlen(self._names["groups"])
            for name in ("state", "counts", "lags", "actors"):
                pipe.hgetall(self._names[name])
            length, *hashes = await pipe.execute()
            state, counts, lags, actors = map(texts, hashes)
            pending = await self._pending(state.get("epoch"))
            seconds, micros = await self._redis.time()
            now = 1000 * seconds + micros // 1000
            leased: Any = await self._redis.zrangebyscore(self._names["leases"], f"({now}", "+inf")
            alive = sorted(actors.keys() & {name.decode(errors="replace") for name in leased})
        held, apart = int(state.get("held", 0)), int(state.get("apart", 0))
        trainer = [state[name] for name in TRAINER if name in state]
        return QueueStatus(
            queued=max(0, length - held + apart),
            pending=pending + apart,
            held=held,
            counts={n: int(c) for n, c in {"trained": state.get("trained", 0), **counts}.items()},
            lags={int(lag): int(c) for lag, c in sorted(lags.items(), key=lambda x: int(x[0]))},
            actors=[ActorReport(**json.loads(actors[name])) for name in alive],
            trainer=trainer_report(trainer) if trainer else None,
        )

    async def dead_letters(self) -> list[DeadLetter]:
        """As GroupQueue."""
        async with redis_call(self._timeout_s):
            letters: Any = await self._redis.xrevrange(self._names["dead"], count=DEAD_LETTERS)
        return [dead_letter(fields) for _, fields in reversed(letters)]

    async def aclose(self) -> None:
        """As GroupQueue."""
        # Over TLS, a server that is silent says no goodbye; nothing is lost by that.
        with suppress(QueueUnavailable):
            async with redis_call(self._timeout_s):
                await self._redis.aclose()

    async def _room(self) -> int:
        """Groups that there is room for; 0 or less where the queue is full."""
        async with redis_call(self._timeout_s), self._redis.pipeline(transaction=False) as pipe:
            pipe.xlen(self._names["groups"])
            pipe.hget(self._names["state"], "held")
            length, held = await pipe.execute()
        return int(self._max_queued - (length - int(held or 0)))

    async def _pending(self, epoch: str | None) -> int:
        """Groups that were read and not trained on; 0 before any takeover."""
        # XINFO of a stream that does not exist is an error.
        if epoch is None or not await self._redis.exists(self._names["groups"]):
            return 0
        groups = await self._redis.xinfo_groups(self._names["groups"])
        return sum(int(group["pending"]) for group in groups)

    async def _read(self, count: int) -> list[Entry]:
        """Entries after the last one, `count` at most, of about READ_BYTES; [] after a second."""
        started, at_once = time.monotonic(), min(count, self._at_once)
        try:
            async with redis_call(self._read_limit_s):
                streams: Any = await self._redis.xread(
                    {self._names["groups"]: self._last_read}, count=at_once, block=READ_WAIT_MS
                )
        except QueueUnavailable:
            # Perhaps a slow link, on which the same read would fail for ever.
            self._at_once, self._read_limit_s = 1, min(2 * self._read_limit_s, LONGEST_READ_S)
            raise
        entries = [
            entry(entry_id, fields) for entry_id, fields in (streams[0][1] if streams else [])
        ]
        if entries:
            # Sizes are not known before: the largest of these stands for the next ones.
            largest = 1 + max(len(each.data) for each in entries)
            rate = sum(len(each.data) for each in entries) / (time.monotonic() - started)
            fitting = min(READ_BYTES, rate * self._timeout_s / 4)
            self._at_once, self._read_limit_s = max(1, int(fitting / largest)), self._timeout_s
        return entries

    async def _fenced(self, script: str, names: Sequence[str], *arguments: Any) -> Any:  # noqa: ANN401
        """Result of a script that only the reader may run. Raises Superseded and QueueReset."""
        epoch = self._epoch
        answer = await self._run(script, names, [epoch, self._name, self._calls, *arguments])
        calls, rest = (answer[0], answer[1]) if isinstance(answer, list) else (answer, None)
        # Several calls may be under way, and their responses come in any order. One of before a
        # take-over may come after it, with the number of a server that has lost its state since.
        if epoch == self._epoch:
            self._calls = max(self._calls, calls)
        return rest

    async def _of_actors(
        self,
        script: str,
        *arguments: Any,  # noqa: ANN401
        further: Sequence[str] = (),
    ) -> Any:  # noqa: ANN401
        """Result of a script of `redis_scripts`. further: keys after those of all of them."""
        first = [self._wake_prefix, self._max_queued]
        return await self._run(script, [*ACTORS, *further], [*first, *arguments])

    async def _run(self, script: str, names: Sequence[str], arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Result of a script, which the server knows by its hash after the first run."""
        keys = [self._names[name] for name in names]
        async with redis_call(self._timeout_s):
            return await self._redis.register_script(script)(keys=keys, args=arguments)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
