"""A queue in one SQLite file, or in memory: for a single machine, without a server.

What `push` has returned from survives the death of every process; a power cut may take the last
few groups. The file must be on a local disk.

The tables hold what the keys of `redis_scripts` hold, with the same invariants; `state.read` is the
last id that the reader was given. Each call is one transaction, so that a process killed within
one leaves nothing of it. `AUTOINCREMENT` keeps ids ascending though the newest row was deleted.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ludic_train.errors import QueueError, QueueReset, QueueUnavailable, Superseded
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
    capacity,
    check_batch_fits,
    check_room,
    until_room,
)

P = ParamSpec("P")
T = TypeVar("T")
READ_WAIT_S, POLL_S = 1.0, 0.005
# An actor that reports no more is dead after this: many times the usual time between two reports.
ALIVE_S = 15.0
# Longer than any transaction of another process takes.
BUSY_S = 10.0
TABLES = """
CREATE TABLE IF NOT EXISTS groups (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, data BLOB);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS lags (lag INTEGER PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS owners (n INTEGER PRIMARY KEY, key TEXT UNIQUE, id INTEGER);
CREATE TABLE IF NOT EXISTS attempts (id INTEGER PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS actors (name TEXT PRIMARY KEY, report TEXT, running INTEGER, seen REAL);
CREATE TABLE IF NOT EXISTS dead
    (n INTEGER PRIMARY KEY, id INTEGER, key TEXT, reason TEXT, size INTEGER, head BLOB);
CREATE TABLE IF NOT EXISTS retired (n INTEGER PRIMARY KEY, task TEXT UNIQUE);
"""
# Adds to the number of a row that is there.
ADDED = "ON CONFLICT DO UPDATE SET n = n + excluded.n"


def _transaction(
    work: Callable[Concatenate[SQLiteQueue, P], T],
) -> Callable[Concatenate[SQLiteQueue, P], Coroutine[Any, Any, T]]:
    """Make a method one transaction; in a thread where it waits for a disk.

    A cancelled call leaves the thread running: its transaction is committed all the same, which a
    caller finds as if the response had been lost.
    """

    def locked(queue: SQLiteQueue, *args: P.args, **kwargs: P.kwargs) -> T:
        # The connection is shared by the threads of this process, and a transaction is not.
        with queue._lock, _committed(queue._db):
            return work(queue, *args, **kwargs)

    @wraps(work)
    async def called(queue: SQLiteQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if queue._on_disk:
            return await asyncio.to_thread(locked, queue, *args, **kwargs)
        return locked(queue, *args, **kwargs)

    return called


class SQLiteQueue:
    """A queue in the file `path`, or for the coroutines of this process alone where it is None.

    Any process of the machine may open the file; any thread of a process may use the object.
    max_queued, when_full: as in RedisQueue.
    clock: seconds that all processes of the machine agree on, and that never jump.

        queue = SQLiteQueue()                    # trainer and actors in one process
        queue = SQLiteQueue("/tmp/run.queue")    # in several, on one machine

    Raises QueueError for a file that cannot be opened, ConfigError for a bad size.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        max_queued: int = MAX_QUEUED,
        when_full: WhenFull = "block",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_room(max_queued, when_full)
        self._max_queued, self._when_full, self._clock = max_queued, when_full, clock
        self._lock = threading.Lock()
        self._epoch = self._last_read = 0
        self._on_disk = path is not None
        self._db = _opened(path)

    @_transaction
    def admit(self, report: ActorReport, wanted: int) -> Admission:
        """As GroupQueue."""
        now = self._clock()
        # A clock that began anew, with the machine, has seen no actor yet.
        self._run("DELETE FROM actors WHERE seen NOT BETWEEN ? AND ?", now - ALIVE_S, now)
        trainer = self._trainer()
        row = report.name, json.dumps(asdict(report)), report.running, now
        self._run("REPLACE INTO actors VALUES (?, ?, ?, ?)", *row)
        if trainer is None:
            return Admission(granted=0, trainer=None)
        check_batch_fits(trainer, self._max_queued)
        (playing,) = self._run("SELECT total(running) FROM actors").fetchone()
        room = self._max_queued if trainer.max_lag is None else capacity(trainer, report.version)
        granted = max(0, min(wanted, room - self._queued() - int(playing)))
        # Before the next report, others must not be granted the same room.
        self._run("UPDATE actors SET running = running + ? WHERE name = ?", granted, report.name)
        query = "SELECT task FROM retired ORDER BY n LIMIT ? OFFSET ?"
        retired = self._run(query, RETIRED_AT_ONCE, report.retired)
        return Admission(
            granted=granted, trainer=trainer, retired=tuple(task for (task,) in retired)
        )

    async def push(self, key: str, data: bytes) -> None:
        """As GroupQueue."""
        while not await self._push(key, data):
            await until_room(self._room)

    @_transaction
    def _push(self, key: str, data: bytes) -> bool:
        """Append the group; False, and nothing appended, where it has to wait for room."""
        surplus = self._queued() + 1 - self._max_queued
        # Outside the transaction, or the trainer could not make room.
        if surplus > 0 and self._when_full == "block":
            return False
        if surplus > 0:
            # Only groups that were not read: the trainer may have the others in its batch.
            oldest = "SELECT id FROM groups WHERE id > ? ORDER BY id LIMIT ?"
            ids = self._run(oldest, self._state("read"), surplus).fetchall()
            self._db.executemany("DELETE FROM groups WHERE id = ?", ids)
            self._count("dropped", len(ids))
        self._run("INSERT INTO groups (key, data) VALUES (?, ?)", key, data)
        return True

    @_transaction
    def leave(self, name: str) -> None:
        """As GroupQueue."""
        self._run("DELETE FROM actors WHERE name = ?", name)

    @_transaction
    def take_over(
        self, trainer: TrainerReport, *, kept: str, held: int, released: int
    ) -> TakenOver:
        """As GroupQueue."""
        check_batch_fits(trainer, self._max_queued)
        if not (kept or "0").isdigit():
            raise QueueError(
                f"the checkpoint continues after the entry {kept!r}, which is none of a file; "
                "resume with the kind of queue that the run learned from"
            )
        last = int(kept or 0)
        self._run("DELETE FROM groups WHERE id <= ?", last)
        # Absolute numbers, so that a takeover that is repeated counts nothing twice.
        lost = max(0, self._state("released") - released)
        self._count("lost", lost)
        # New groups must come after those that were read, even in a new file.
        self._run(
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'groups', 0 WHERE NOT EXISTS "
            "(SELECT 1 FROM sqlite_sequence WHERE name = 'groups')"
        )
        number = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'groups'"
        self._run(number, max(last, self._last_read))
        self._epoch, self._last_read = self._state("epoch") + 1, last
        self._set(epoch=self._epoch, read=last, held=held, released=released, **asdict(trainer))
        return TakenOver(
            owners={key: str(i) for key, i in self._run("SELECT key, id FROM owners")},
            attempts={str(i): n for i, n in self._run("SELECT id, n FROM attempts")},
            lost=lost,
        )

    async def read(self, count: int) -> list[Entry]:
        """As GroupQueue."""
        # Polled: nothing tells a process that another one wrote to the file.
        deadline = time.monotonic() + READ_WAIT_S
        while not (found := await self._read(count)) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        return found

    @_transaction
    def _read(self, count: int) -> list[Entry]:
        """As `read`, at once; the cursor advances in the same transaction."""
        self._fence()
        query = "SELECT id, key, data FROM groups WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._run(query, self._last_read, count).fetchall()
        if rows:
            self._last_read = rows[-1][0]
            # In the file too, for actors that drop the oldest group that was not read.
            self._set(read=self._last_read)
        return [Entry(id=str(i), key=key, data=data) for i, key, data in rows]

    @_transaction
    def attempt(self, entries: Sequence[Entry]) -> None:
        """As GroupQueue."""
        self._fence()
        rows = [(int(entry.id), entry.attempts + 1) for entry in entries]
        self._db.executemany("REPLACE INTO attempts VALUES (?, ?)", rows)

    @_transaction
    def settle(self, progress: Progress) -> None:
        """As GroupQueue."""
        self._fence()
        self._set(version=progress.trainer.version, held=progress.held, released=progress.released)
        for done in progress.trained:
            # A key that is known was counted by a call whose answer was lost.
            if self._own(done.key, done.id) and done.lag is not None:
                self._run(f"INSERT INTO lags VALUES (?, 1) {ADDED}", done.lag)
            self._run("DELETE FROM attempts WHERE id = ?", int(done.id))
        tasks = [(task,) for task in progress.retired]
        self._db.executemany("INSERT OR IGNORE INTO retired (task) VALUES (?)", tasks)
        ids = [(int(i),) for i in progress.release]
        self._db.executemany("DELETE FROM groups WHERE id = ?", ids)

    @_transaction
    def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """As GroupQueue."""
        self._fence()
        # Gone already: the response of an earlier call was lost.
        if not self._run("DELETE FROM groups WHERE id = ?", int(entry.id)).rowcount:
            return
        self._count(why, 1)
        self._run("DELETE FROM attempts WHERE id = ?", int(entry.id))
        # The key of a dead one may be a lie; that of a duplicate is another entry's.
        if why in ("stale", "filtered"):
            self._own(entry.key, entry.id)
        if why == "dead":
            texts = entry.key[:DEAD_HEAD], reason[:DEAD_HEAD]
            row = int(entry.id), *texts, len(entry.data), entry.data[:DEAD_HEAD]
            insert = "INSERT INTO dead (id, key, reason, size, head) VALUES (?, ?, ?, ?, ?)"
            self._run(insert, *row)
            self._run("DELETE FROM dead WHERE n <= (SELECT max(n) FROM dead) - ?", DEAD_LETTERS)

    @_transaction
    def status(self) -> QueueStatus:
        """As GroupQueue."""
        now = self._clock()
        alive = "SELECT report FROM actors WHERE seen BETWEEN ? AND ? ORDER BY name"
        reports = self._run(alive, now - ALIVE_S, now)
        read = "SELECT count(*) FROM groups WHERE id <= ?"
        (pending,) = self._run(read, self._state("read")).fetchone()
        held = self._state("held")
        trained = {"trained": held + self._state("released")}
        return QueueStatus(
            queued=self._queued(),
            pending=max(0, pending - held),
            held=held,
            counts=trained | dict(self._run("SELECT name, n FROM counts")),
            lags=dict(self._run("SELECT lag, n FROM lags ORDER BY lag")),
            actors=[ActorReport(**json.loads(report)) for (report,) in reports],
            trainer=self._trainer(),
        )

    @_transaction
    def dead_letters(self) -> list[DeadLetter]:
        """As GroupQueue."""
        return [
            DeadLetter(id=str(i), key=key, reason=reason, size=size, head=head)
            for i, key, reason, size, head in self._run(
                "SELECT id, key, reason, size, head FROM dead ORDER BY n"
            )
        ]

    async def aclose(self) -> None:
        """As GroupQueue; what was in memory alone is gone."""
        with self._lock:
            self._db.close()

    @_transaction
    def _room(self) -> int:
        return self._max_queued - self._queued()

    def _fence(self) -> None:
        """Raise Superseded for all but the newest reader: only it may change what was read."""
        epoch = self._state("epoch")
        # Epochs only grow; a smaller one is that of a file whose state was lost.
        if epoch < self._epoch:
            raise QueueReset("the queue has forgotten its reader")
        if epoch != self._epoch:
            raise Superseded("another trainer has taken this queue over; start one per queue")

    def _run(self, statement: str, *values: str | float | bytes) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def _state(self, name: str) -> int:
        """A number of the state; 0 before it was first set."""
        row = self._run("SELECT value FROM state WHERE name = ?", name).fetchone()
        return int(row[0]) if row else 0

    def _set(self, **values: int | None) -> None:
        self._db.executemany("REPLACE INTO state VALUES (?, ?)", values.items())

    def _count(self, name: str, more: int) -> None:
        if more:
            self._run(f"INSERT INTO counts VALUES (?, ?) {ADDED}", name, more)

    def _own(self, key: str, entry_id: str) -> bool:
        """Note whose key it is; True if it was no other entry's."""
        insert = "INSERT OR IGNORE INTO owners (key, id) VALUES (?, ?)"
        new = self._run(insert, key, int(entry_id)).rowcount == 1
        oldest = "DELETE FROM owners WHERE n <= (SELECT max(n) FROM owners) - ?"
        self._run(oldest, REMEMBERED_KEYS)
        return new

    def _queued(self) -> int:
        """Groups that wait to be trained on: all that are here but those held."""
        (length,) = self._run("SELECT count(*) FROM groups").fetchone()
        return int(length) - self._state("held")

    def _trainer(self) -> TrainerReport | None:
        values: dict[str, Any] = dict(self._run("SELECT name, value FROM state").fetchall())
        if "version" not in values:
            return None
        return TrainerReport(**{name: values[name] for name in TrainerReport.__dataclass_fields__})


def _opened(path: Path | str | None) -> sqlite3.Connection:
    """A connection to the file, with all tables. Raises QueueError."""
    try:
        db = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=BUSY_S,
            # Python would begin transactions by itself, and later than BEGIN IMMEDIATE does.
            isolation_level=None,
            check_same_thread=False,
        )
        _made_durable(db)
        # A sync per checkpoint of the log and not per commit: a power cut may take the last few.
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(TABLES)
    except sqlite3.Error as error:
        raise QueueError(f"cannot open the queue {path}: {error}; is its folder there?") from error
    return db


def _made_durable(db: sqlite3.Connection) -> None:
    """Set the journal's mode. SQLite waits for no other process that sets it just then: we do."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(POLL_S)


@contextmanager
def _committed(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction. Raises QueueUnavailable for a file that is locked, QueueError otherwise."""
    try:
        # Its own context manager commits or rolls back, but begins nothing. IMMEDIATE takes the
        # write lock now: one that is taken after a read fails at once where another wrote between.
        db.execute("BEGIN IMMEDIATE")
        with db:
            yield
    except sqlite3.OperationalError as error:
        raise QueueUnavailable(f"the queue's file: {error}") from error
    except sqlite3.DatabaseError as error:
        raise QueueError(f"the queue's file cannot be used: {error}") from error
