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
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

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
    capacity,
    check_batch_fits,
    check_room,
)
from ludic_train.cluster.queues.retry import seize, wait_for_room
from ludic_train.errors import QueueError, QueueReset, QueueUnavailable, Superseded

# Longer than any transaction of another process takes.
BUSY_S, POLL_S = 10.0, 0.005
# Of the tables, in the file's header.
SCHEMA = 2
# `state.length` is the number of groups: counting them would read the whole table at each push.
TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS groups (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT);
CREATE TABLE IF NOT EXISTS blobs (id INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS lags (lag INTEGER PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS owners (n INTEGER PRIMARY KEY, key TEXT UNIQUE, id INTEGER);
CREATE TABLE IF NOT EXISTS attempts (id INTEGER PRIMARY KEY, n INTEGER);
CREATE TABLE IF NOT EXISTS actors (name TEXT PRIMARY KEY, report TEXT, running INTEGER, seen REAL);
CREATE TABLE IF NOT EXISTS dead
    (n INTEGER PRIMARY KEY, id INTEGER, key TEXT, reason TEXT, size INTEGER, head BLOB);
CREATE TABLE IF NOT EXISTS retired (n INTEGER PRIMARY KEY, task TEXT UNIQUE);
INSERT OR IGNORE INTO state VALUES ('length', 0);
CREATE TRIGGER IF NOT EXISTS pushed AFTER INSERT ON groups BEGIN
    UPDATE state SET value = value + 1 WHERE name = 'length';
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON groups BEGIN
    UPDATE state SET value = value - 1 WHERE name = 'length';
    DELETE FROM blobs WHERE id = OLD.id;
END;
PRAGMA user_version = {SCHEMA};
COMMIT;
"""
# Adds to the number of a row that is there.
ADDED = "ON CONFLICT DO UPDATE SET n = n + excluded.n"


class Tables:
    """Statements on the tables of a queue, within a transaction of the caller's."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def run(self, statement: str, *values: str | float | bytes) -> sqlite3.Cursor:
        """Result of a statement."""
        return self.db.execute(statement, values)

    def state(self, name: str) -> int:
        """A number of the state; 0 before it was first set."""
        return int(self.text(name) or 0)

    def text(self, name: str) -> str:
        """A value of the state as text; "" before it was first set."""
        row = self.run("SELECT value FROM state WHERE name = ?", name).fetchone()
        return str(row[0]) if row else ""

    def set(self, **values: float | str | None) -> None:
        """Set values of the state."""
        self.db.executemany("REPLACE INTO state VALUES (?, ?)", values.items())

    def count(self, name: str, more: int) -> None:
        """Add to a count of groups by their end."""
        if more:
            self.run(f"INSERT INTO counts VALUES (?, ?) {ADDED}", name, more)

    def count_lag(self, lag: int) -> None:
        """Add a group that was trained on with this lag."""
        self.run(f"INSERT INTO lags VALUES (?, 1) {ADDED}", lag)

    def own(self, key: str, entry_id: str) -> bool:
        """Note whose key it is; True if it was no other entry's."""
        insert = "INSERT OR IGNORE INTO owners (key, id) VALUES (?, ?)"
        new = self.run(insert, key, int(entry_id)).rowcount == 1
        oldest = "DELETE FROM owners WHERE n <= (SELECT max(n) FROM owners) - ?"
        self.run(oldest, REMEMBERED_KEYS)
        return new


def open_database(path: Path | str | None) -> sqlite3.Connection:
    """A connection to the file, with all tables. Raises QueueError."""
    try:
        db = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=BUSY_S,
            # Python would begin transactions by itself, and later than BEGIN IMMEDIATE does.
            isolation_level=None,
            check_same_thread=False,
        )
        _set_journal_mode(db)
        # A sync per checkpoint of the log and not per commit: a power cut may take the last few.
        db.execute("PRAGMA synchronous = NORMAL")
        # In this order: another process may create the tables and their version just then.
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        if tables and schema != SCHEMA:
            raise QueueError(
                f"the queue {path} has tables of version {schema}, and this Ludic those of version "
                f"{SCHEMA}: name a new file, or end the run with the Ludic that began it"
            )
        db.executescript(TABLES)
    except sqlite3.Error as error:
        raise QueueError(f"cannot open the queue {path}: {error}; is its folder there?") from error
    return db


def _set_journal_mode(db: sqlite3.Connection) -> None:
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
def transaction(db: sqlite3.Connection) -> Iterator[None]:
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


P = ParamSpec("P")
T = TypeVar("T")
READ_WAIT_S, POLL_S, WAKE_S = 1.0, 0.005, 0.05
# An actor that reports no more is dead after this: many times the usual time between two reports.
ALIVE_S = 15.0


def _transaction(
    work: Callable[Concatenate[SQLiteQueue, P], T],
) -> Callable[Concatenate[SQLiteQueue, P], Coroutine[Any, Any, T]]:
    """Make a method one transaction; in a thread where it waits for a disk.

    A cancelled call leaves the thread running: its transaction is transaction all the same, which a
    caller finds as if the response had been lost.
    """

    def locked(queue: SQLiteQueue, *args: P.args, **kwargs: P.kwargs) -> T:
        # The connection is shared by the threads of this process, and a transaction is not.
        with queue._lock, transaction(queue._tables.db):
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
    max_queued: as in RedisQueue.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_room(max_queued)
        self._max_queued, self._clock = max_queued, clock
        self._lock = threading.Lock()
        self._name = secrets.token_hex(8)
        self._epoch = self._last_read = self._settled = 0
        self._on_disk = path is not None
        self._tables = Tables(open_database(path))

    @_transaction
    def admit(self, report: ActorReport, wanted: int) -> Admission:
        """As GroupQueue."""
        now = self._clock()
        # A clock that began anew, with the machine, has seen no actor yet.
        self._tables.run("DELETE FROM actors WHERE seen NOT BETWEEN ? AND ?", now - ALIVE_S, now)
        trainer = self._trainer()
        row = report.name, json.dumps(asdict(report)), report.running, now
        self._tables.run("REPLACE INTO actors VALUES (?, ?, ?, ?)", *row)
        if trainer is None:
            return Admission(granted=0, trainer=None)
        check_batch_fits(trainer, self._max_queued)
        (playing,) = self._tables.run("SELECT total(running) FROM actors").fetchone()
        room = self._max_queued if trainer.max_lag is None else capacity(trainer, report.version)
        granted = max(0, min(wanted, room - self._queued() - int(playing)))
        # Before the next report, others must not be granted the same room.
        self._tables.run(
            "UPDATE actors SET running = running + ? WHERE name = ?", granted, report.name
        )
        query = "SELECT task FROM retired ORDER BY n LIMIT ? OFFSET ?"
        retired = self._tables.run(query, RETIRED_AT_ONCE, report.retired)
        return Admission(
            granted=granted, trainer=trainer, retired=tuple(task for (task,) in retired)
        )

    async def push(self, key: str, data: bytes) -> None:
        """As GroupQueue."""
        while not await self._push(key, data):
            await wait_for_room(self._room)

    @_transaction
    def _push(self, key: str, data: bytes) -> bool:
        """Append the group; False, and nothing appended, where it has to wait for room."""
        # The wait is outside the transaction, or the trainer could not make room.
        if self._queued() >= self._max_queued:
            return False
        group = self._tables.run("INSERT INTO groups (key) VALUES (?)", key).lastrowid
        self._tables.run("INSERT INTO blobs VALUES (?, ?)", group or 0, data)
        return True

    @_transaction
    def leave(self, name: str) -> None:
        """As GroupQueue."""
        self._tables.run("DELETE FROM actors WHERE name = ?", name)

    async def woken(self, name: str) -> bool:
        """As GroupQueue: at once, since looking costs little on one machine."""
        await asyncio.sleep(WAKE_S)
        return True

    async def claim(self) -> None:
        """As GroupQueue."""
        await seize(self._claim)

    @_transaction
    def _claim(self) -> bool | None:
        return self._seize() or None

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
        if not (kept or "0").isdigit():
            raise QueueError(
                f"the checkpoint continues after the entry {kept!r}, which is none of a file; "
                "resume with the kind of queue that the run learned from"
            )
        return await seize(lambda: self._take_over(trainer, int(kept or 0), total, held, waiting))

    @_transaction
    def _take_over(
        self,
        trainer: TrainerReport,
        last: int,
        total: int,
        held: Sequence[str],
        waiting: Sequence[str],
    ) -> TakenOver | None:
        """As `take_over`, at once; None where the reader before won a contest and lives."""
        if not self._seize():
            return None
        removed = self._tables.run("DELETE FROM groups WHERE id <= ?", last).rowcount
        # Counted anew here alone, for a file whose state was lost.
        self._tables.run("REPLACE INTO state SELECT 'length', count(*) FROM groups")
        # Absolute numbers, so that a takeover that is repeated counts nothing twice.
        before, left = self._tables.state("trained"), max(0, self._tables.state("held") - removed)
        lost = max(0, before - total - left)
        if self._tables.text("taken_by") != self._name:
            lost += self._tables.state("apart")
        self._tables.count("lost", lost)
        # New groups must come after those that were read, even in a new file.
        self._tables.run(
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'groups', 0 WHERE NOT EXISTS "
            "(SELECT 1 FROM sqlite_sequence WHERE name = 'groups')"
        )
        number = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'groups'"
        self._tables.run(number, max(last, self._last_read))
        self._last_read = last
        still_held = {*filter(self._is_there, held)}
        there = frozenset({*still_held, *filter(self._is_there, waiting)})
        apart = len(waiting) - (len(there) - len(still_held))
        self._tables.set(read=last, settled=0, held=len(still_held), apart=apart, trained=total)
        self._tables.set(taken_by=self._name, **asdict(trainer))
        return TakenOver(
            owners={key: str(i) for key, i in self._tables.run("SELECT key, id FROM owners")},
            attempts={str(i): n for i, n in self._tables.run("SELECT id, n FROM attempts")},
            lost=lost,
            forgot=before < total,
            there=there,
        )

    @_transaction
    def beat(self) -> None:
        """As GroupQueue."""
        self._fence()
        self._tables.set(beat=self._clock())

    async def read(self, count: int) -> list[Entry]:
        """As GroupQueue."""
        epoch = self._epoch
        # Polled: nothing tells a process that another one wrote to the file.
        deadline = time.monotonic() + READ_WAIT_S
        while not (entries := await self._read(count)) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        # Taken over meanwhile, by another call that met a reset: all is to be read again.
        if epoch != self._epoch:
            return []
        # Here and not in the thread: its transaction may fail, or its caller be gone.
        if entries:
            self._last_read = int(entries[-1].id)
        return entries

    @_transaction
    def _read(self, count: int) -> list[Entry]:
        """As `read`, at once."""
        self._fence()
        groups = "SELECT id, key, data FROM groups JOIN blobs USING (id)"
        query = f"{groups} WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._tables.run(query, self._last_read, count).fetchall()
        if rows:
            # In the file too, for `status`.
            self._tables.set(read=rows[-1][0])
        return [Entry(id=str(i), key=key, data=data) for i, key, data in rows]

    @_transaction
    def attempt(self, entries: Sequence[Entry]) -> None:
        """As GroupQueue."""
        self._fence()
        rows = [(int(entry.id), entry.attempts + 1) for entry in entries]
        self._tables.db.executemany("REPLACE INTO attempts VALUES (?, ?)", rows)

    async def settle(self, progress: Progress) -> None:
        """As GroupQueue."""
        self._settled += 1
        await self._settle(progress, self._settled, self._epoch)

    @_transaction
    def _settle(self, progress: Progress, number: int, epoch: int) -> None:
        """As `settle`; one that comes after a later one would set the numbers back."""
        self._fence()
        # It waited in its thread while another call took over: what is held may have changed.
        if epoch != self._epoch:
            raise QueueReset("the queue was taken over while this call waited")
        if number <= self._tables.state("settled"):
            return
        self._tables.set(settled=number, held=progress.held, trained=progress.total)
        trainer = progress.trainer
        self._tables.set(version=trainer.version, levels=trainer.levels, apart=progress.apart)
        for done in progress.trained:
            # A key that is known was counted by a call whose answer was lost.
            if self._tables.own(done.key, done.id) and done.lag is not None:
                self._tables.count_lag(done.lag)
            self._tables.run("DELETE FROM attempts WHERE id = ?", int(done.id))
        tasks = [(task,) for task in progress.retired]
        self._tables.db.executemany("INSERT OR IGNORE INTO retired (task) VALUES (?)", tasks)
        ids = [(int(i),) for i in progress.release]
        self._tables.db.executemany("DELETE FROM groups WHERE id = ?", ids)

    @_transaction
    def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """As GroupQueue."""
        self._fence()
        # Gone already: the response of an earlier call was lost.
        if not self._tables.run("DELETE FROM groups WHERE id = ?", int(entry.id)).rowcount:
            return
        self._tables.count(why, 1)
        self._tables.run("DELETE FROM attempts WHERE id = ?", int(entry.id))
        # The key of a dead one may be a lie; that of a duplicate is another entry's.
        if why in ("stale", "filtered"):
            self._tables.own(entry.key, entry.id)
        if why == "dead":
            texts = entry.key[:DEAD_HEAD], reason[:DEAD_HEAD]
            row = int(entry.id), *texts, len(entry.data), entry.data[:DEAD_HEAD]
            insert = "INSERT INTO dead (id, key, reason, size, head) VALUES (?, ?, ?, ?, ?)"
            self._tables.run(insert, *row)
            self._tables.run(
                "DELETE FROM dead WHERE n <= (SELECT max(n) FROM dead) - ?", DEAD_LETTERS
            )

    @_transaction
    def status(self) -> QueueStatus:
        """As GroupQueue."""
        now = self._clock()
        alive = "SELECT report FROM actors WHERE seen BETWEEN ? AND ? ORDER BY name"
        reports = self._tables.run(alive, now - ALIVE_S, now)
        read = "SELECT count(*) FROM groups WHERE id <= ?"
        (pending,) = self._tables.run(read, self._tables.state("read")).fetchone()
        held = self._tables.state("held")
        trained = {"trained": self._tables.state("trained")}
        return QueueStatus(
            queued=self._queued(),
            pending=max(0, pending - held) + self._tables.state("apart"),
            held=held,
            counts=trained | dict(self._tables.run("SELECT name, n FROM counts")),
            lags=dict(self._tables.run("SELECT lag, n FROM lags ORDER BY lag")),
            actors=[ActorReport(**json.loads(report)) for (report,) in reports],
            trainer=self._trainer(),
        )

    @_transaction
    def dead_letters(self) -> list[DeadLetter]:
        """As GroupQueue."""
        return [
            DeadLetter(id=str(i), key=key, reason=reason, size=size, head=head)
            for i, key, reason, size, head in self._tables.run(
                "SELECT id, key, reason, size, head FROM dead ORDER BY n"
            )
        ]

    async def aclose(self) -> None:
        """As GroupQueue; what was in memory alone is gone."""
        with self._lock:
            self._tables.db.close()

    @_transaction
    def _room(self) -> int:
        return self._max_queued - self._queued()

    def _seize(self) -> bool:
        """Become the reader; False, and nothing changed, where the one before won and lives."""
        now, reader = self._clock(), self._tables.text("reader")
        if reader != self._name:
            lives = reader and 0 <= now - float(self._tables.text("beat")) <= READER_ALIVE_S
            if lives and self._tables.state("contested"):
                return False
            self._tables.set(contested=int(bool(lives)))
        self._epoch = max(self._epoch, self._tables.state("epoch")) + 1
        self._tables.set(epoch=self._epoch, reader=self._name, beat=now)
        return True

    def _fence(self) -> None:
        """Raise Superseded for all but the newest reader: only it may change what was read."""
        epoch = self._tables.state("epoch")
        # Epochs only grow; a smaller one is that of a file whose state was lost.
        if epoch < self._epoch:
            raise QueueReset("the queue has forgotten its reader")
        if self._tables.text("reader") != self._name:
            raise Superseded("another trainer has taken this queue over; start one per queue")

    def _is_there(self, entry_id: str) -> bool:
        """True if the entry is in the queue."""
        row = self._tables.run("SELECT 1 FROM groups WHERE id = ?", int(entry_id))
        return row.fetchone() is not None

    def _queued(self) -> int:
        """Groups that wait to be trained on: all that are here but those held, and those apart."""
        waiting = self._tables.state("length") - self._tables.state("held")
        return waiting + self._tables.state("apart")

    def _trainer(self) -> TrainerReport | None:
        values: dict[str, Any] = dict(self._tables.run("SELECT name, value FROM state").fetchall())
        if "version" not in values:
            return None
        return TrainerReport(**{name: values[name] for name in TrainerReport.__dataclass_fields__})
