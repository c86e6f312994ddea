"""A queue in one SQLite file, or in memory: for a single machine, without a server.

What `push` has returned from survives the death of every process; a power cut may take the last
few groups. The file must be on a local disk.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

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

T = TypeVar("T")
READ_WAIT_S, POLL_S = 1.0, 0.005
ALIVE_S = 15.0
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


class SQLiteQueue:
    """A queue in the file `path`, or for the coroutines of this process alone where it is None.

    Any process of the machine may open the file; any thread of a process may use the object.
    max_queued, when_full: as in RedisQueue.
    clock: seconds that all processes of the machine agree on, and that never jump.
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

    async def admit(self, report: ActorReport, wanted: int) -> Admission:
        """As GroupQueue."""
        return await self._do(lambda db: self._admit(db, report, wanted))

    async def push(self, key: str, data: bytes) -> None:
        """As GroupQueue."""
        while not await self._do(lambda db: self._push(db, key, data)):
            await until_room(self._room)

    async def leave(self, name: str) -> None:
        """As GroupQueue."""
        await self._do(lambda db: db.execute("DELETE FROM actors WHERE name = ?", (name,)))

    async def take_over(
        self, trainer: TrainerReport, *, kept: str, held: int, released: int
    ) -> TakenOver:
        """As GroupQueue."""
        check_batch_fits(trainer, self._max_queued)
        if not (kept or "0").isdigit():
            raise QueueError(
                f"the checkpoint goes on after the entry {kept!r}, which is none of a file; resume "
                "with the kind of queue that the run learned from"
            )
        return await self._do(
            lambda db: self._take_over(db, trainer, int(kept or 0), held, released)
        )

    async def read(self, count: int) -> list[Entry]:
        """As GroupQueue."""
        deadline = time.monotonic() + READ_WAIT_S
        while True:
            found = await self._do(lambda db: self._read(db, count))
            if found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(POLL_S)

    async def attempt(self, entries: Sequence[Entry]) -> None:
        """As GroupQueue."""
        await self._do(lambda db: self._attempt(db, entries))

    async def settle(self, progress: Progress) -> None:
        """As GroupQueue."""
        await self._do(lambda db: self._settle(db, progress))

    async def discard(self, entry: Entry, why: Discarded, reason: str = "") -> None:
        """As GroupQueue."""
        await self._do(lambda db: self._discard(db, entry, why, reason))

    async def status(self) -> QueueStatus:
        """As GroupQueue."""
        return await self._do(self._status)

    async def dead_letters(self) -> list[DeadLetter]:
        """As GroupQueue."""
        query = "SELECT id, key, reason, size, head FROM dead ORDER BY n"
        rows = await self._do(lambda db: db.execute(query).fetchall())
        return [
            DeadLetter(id=str(i), key=key, reason=reason, size=size, head=head)
            for i, key, reason, size, head in rows
        ]

    async def aclose(self) -> None:
        """As GroupQueue; what was in memory alone is gone."""
        with self._lock:
            self._db.close()

    def _admit(self, db: sqlite3.Connection, report: ActorReport, wanted: int) -> Admission:
        now = self._clock()
        # A clock that began anew, with the machine, has seen nobody yet.
        db.execute("DELETE FROM actors WHERE seen NOT BETWEEN ? AND ?", (now - ALIVE_S, now))
        trainer = _trainer(db)
        row = report.name, json.dumps(asdict(report)), report.running, now
        db.execute("REPLACE INTO actors VALUES (?, ?, ?, ?)", row)
        if trainer is None:
            return Admission(granted=0, trainer=None)
        check_batch_fits(trainer, self._max_queued)
        (playing,) = db.execute("SELECT total(running) FROM actors").fetchone()
        room = self._max_queued if trainer.max_lag is None else capacity(trainer, report.version)
        granted = max(0, min(wanted, room - _queued(db) - int(playing)))
        update = "UPDATE actors SET running = running + ? WHERE name = ?"
        db.execute(update, (granted, report.name))
        query = "SELECT task FROM retired ORDER BY n LIMIT ? OFFSET ?"
        retired = db.execute(query, (RETIRED_AT_ONCE, report.retired)).fetchall()
        return Admission(
            granted=granted, trainer=trainer, retired=tuple(task for (task,) in retired)
        )

    def _push(self, db: sqlite3.Connection, key: str, data: bytes) -> bool:
        surplus = _queued(db) + 1 - self._max_queued
        if surplus > 0 and self._when_full == "block":
            return False
        if surplus > 0:
            oldest = "SELECT id FROM groups WHERE id > ? ORDER BY id LIMIT ?"
            ids = db.execute(oldest, (_state(db, "read"), surplus)).fetchall()
            db.executemany("DELETE FROM groups WHERE id = ?", ids)
            _count(db, "dropped", len(ids))
        db.execute("INSERT INTO groups (key, data) VALUES (?, ?)", (key, data))
        return True

    def _take_over(
        self, db: sqlite3.Connection, trainer: TrainerReport, kept: int, held: int, released: int
    ) -> TakenOver:
        db.execute("DELETE FROM groups WHERE id <= ?", (kept,))
        lost = max(0, _state(db, "released") - released)
        if lost:
            _count(db, "lost", lost)
        _number_after(db, max(kept, self._last_read))
        self._epoch, self._last_read = _state(db, "epoch") + 1, kept
        _set(db, epoch=self._epoch, read=kept, held=held, released=released, **asdict(trainer))
        owners = db.execute("SELECT key, id FROM owners").fetchall()
        attempts = db.execute("SELECT id, n FROM attempts").fetchall()
        return TakenOver(
            owners={key: str(i) for key, i in owners},
            attempts={str(i): n for i, n in attempts},
            lost=lost,
        )

    def _read(self, db: sqlite3.Connection, count: int) -> list[Entry]:
        self._fence(db)
        query = "SELECT id, key, data FROM groups WHERE id > ? ORDER BY id LIMIT ?"
        rows = db.execute(query, (self._last_read, count)).fetchall()
        if rows:
            self._last_read = rows[-1][0]
            _set(db, read=self._last_read)
        return [Entry(id=str(i), key=key, data=data) for i, key, data in rows]

    def _attempt(self, db: sqlite3.Connection, entries: Sequence[Entry]) -> None:
        self._fence(db)
        rows = [(int(entry.id), entry.attempts + 1) for entry in entries]
        db.executemany("REPLACE INTO attempts VALUES (?, ?)", rows)

    def _settle(self, db: sqlite3.Connection, progress: Progress) -> None:
        self._fence(db)
        _set(db, version=progress.trainer.version, held=progress.held, released=progress.released)
        for done in progress.trained:
            if _own(db, done.key, done.id) and done.lag is not None:
                _add(db, "lags", done.lag, 1)
        tasks = [(task,) for task in progress.retired]
        db.executemany("INSERT OR IGNORE INTO retired (task) VALUES (?)", tasks)
        ids = [(int(done.id),) for done in progress.trained]
        db.executemany("DELETE FROM attempts WHERE id = ?", ids)
        db.executemany("DELETE FROM groups WHERE id = ?", [(int(i),) for i in progress.release])

    def _discard(self, db: sqlite3.Connection, entry: Entry, why: Discarded, reason: str) -> None:
        self._fence(db)
        if not db.execute("DELETE FROM groups WHERE id = ?", (int(entry.id),)).rowcount:
            return
        _count(db, why, 1)
        db.execute("DELETE FROM attempts WHERE id = ?", (int(entry.id),))
        # The key of a dead one may be a lie; that of a duplicate is another entry's.
        if why in ("stale", "filtered"):
            _own(db, entry.key, entry.id)
        if why != "dead":
            return
        texts = entry.key[:DEAD_HEAD], reason[:DEAD_HEAD]
        row = int(entry.id), *texts, len(entry.data), entry.data[:DEAD_HEAD]
        db.execute("INSERT INTO dead (id, key, reason, size, head) VALUES (?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM dead WHERE n <= (SELECT max(n) FROM dead) - ?", (DEAD_LETTERS,))

    def _status(self, db: sqlite3.Connection) -> QueueStatus:
        now = self._clock()
        alive = "SELECT report FROM actors WHERE seen BETWEEN ? AND ? ORDER BY name"
        reports = db.execute(alive, (now - ALIVE_S, now)).fetchall()
        read = "SELECT count(*) FROM groups WHERE id <= ?"
        (pending,) = db.execute(read, (_state(db, "read"),)).fetchone()
        held = _state(db, "held")
        trained = {"trained": held + _state(db, "released")}
        return QueueStatus(
            queued=_queued(db),
            pending=max(0, pending - held),
            held=held,
            counts=trained | dict(db.execute("SELECT name, n FROM counts")),
            lags=dict(db.execute("SELECT lag, n FROM lags ORDER BY lag")),
            actors=[ActorReport(**json.loads(report)) for (report,) in reports],
            trainer=_trainer(db),
        )

    async def _room(self) -> int:
        return self._max_queued - await self._do(_queued)

    def _fence(self, db: sqlite3.Connection) -> None:
        epoch = _state(db, "epoch")
        if epoch < self._epoch:
            raise QueueReset("the queue has forgotten its reader")
        if epoch != self._epoch:
            raise Superseded("another trainer has taken this queue over; start one per queue")

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, done in one transaction; in a thread where it waits for a disk."""
        return await asyncio.to_thread(self._now, work) if self._on_disk else self._now(work)

    def _now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, _transaction(self._db):
            return work(self._db)


def _opened(path: Path | str | None) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        _made_durable(db)
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
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise QueueUnavailable(f"the queue's file: {error}") from error
    except sqlite3.DatabaseError as error:
        raise QueueError(f"the queue's file cannot be used: {error}") from error


def _number_after(db: sqlite3.Connection, last: int) -> None:
    """Let no new group have a number up to `last`, as a new file would."""
    db.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'groups', 0 WHERE NOT EXISTS "
        "(SELECT 1 FROM sqlite_sequence WHERE name = 'groups')"
    )
    db.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'groups'", (last,))


def _state(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _set(db: sqlite3.Connection, **values: Any) -> None:  # noqa: ANN401 - what SQLite holds
    db.executemany("REPLACE INTO state VALUES (?, ?)", values.items())


def _count(db: sqlite3.Connection, name: str, more: int) -> None:
    _add(db, "counts", name, more)


def _add(db: sqlite3.Connection, table: str, key: str | int, more: int) -> None:
    column = {"counts": "name", "lags": "lag"}[table]
    db.execute(
        f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT ({column}) DO UPDATE SET n = n + ?",
        (key, more, more),
    )


def _own(db: sqlite3.Connection, key: str, entry_id: str) -> bool:
    """Note whose key it is; whether nobody had it."""
    insert = "INSERT OR IGNORE INTO owners (key, id) VALUES (?, ?)"
    new = db.execute(insert, (key, int(entry_id))).rowcount == 1
    db.execute("DELETE FROM owners WHERE n <= (SELECT max(n) FROM owners) - ?", (REMEMBERED_KEYS,))
    return new


def _queued(db: sqlite3.Connection) -> int:
    (length,) = db.execute("SELECT count(*) FROM groups").fetchone()
    return int(length) - _state(db, "held")


def _trainer(db: sqlite3.Connection) -> TrainerReport | None:
    values: dict[str, Any] = dict(db.execute("SELECT name, value FROM state").fetchall())
    if "version" not in values:
        return None
    return TrainerReport(**{name: values[name] for name in TrainerReport.__dataclass_fields__})
