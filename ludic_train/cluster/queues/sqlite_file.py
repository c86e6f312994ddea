"""The file of a SQLite queue: its tables, and transactions on it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ludic_train.cluster.queues.base import REMEMBERED_KEYS
from ludic_train.errors import QueueError, QueueUnavailable

# Longer than any transaction of another process takes.
BUSY_S, POLL_S = 10.0, 0.005
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


def opened(path: Path | str | None) -> sqlite3.Connection:
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
def committed(db: sqlite3.Connection) -> Iterator[None]:
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
