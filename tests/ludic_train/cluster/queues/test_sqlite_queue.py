import asyncio
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from threading import Timer

import pytest

from ludic_train.cluster.queues import sqlite_queue
from ludic_train.cluster.queues.base import ActorReport, Progress, TrainerReport
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.errors import QueueError, QueueReset, QueueUnavailable

FRESH = TrainerReport(version=0, groups_per_batch=2, group_size=4, max_lag=3)
ENDLESS = """
import asyncio, sys
from itertools import count
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue

async def push():
    queue = SQLiteQueue(sys.argv[1])
    for i in count():
        await queue.push(str(i), str(i).encode() * 1000)
        print(i, flush=True)

asyncio.run(push())
"""


async def take_over(queue):
    return await queue.take_over(FRESH, kept="", total=0)


async def test_every_group_that_was_pushed_outlives_a_kill(tmp_path):
    path = tmp_path / "queue.sqlite3"
    command = [sys.executable, "-c", ENDLESS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = [process.stdout.readline() for _ in range(30)]
        process.kill()
        seen += process.stdout.readlines()
    said = int(seen[-1])
    queue = SQLiteQueue(path)
    await take_over(queue)
    found = await queue.read(10_000)
    # One more may have been pushed when the kill came before the word of it.
    assert [entry.key for entry in found[: said + 1]] == [str(i) for i in range(said + 1)]
    assert len(found) <= said + 2
    assert all(entry.data == entry.key.encode() * 1000 for entry in found)
    await queue.aclose()


async def test_a_report_that_waits_while_its_reader_takes_over_is_made_again(tmp_path, monkeypatch):
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    await take_over(queue)
    await queue.settle(Progress(trainer=FRESH, total=1))
    to_thread = asyncio.to_thread

    async def late(*call):
        monkeypatch.undo()
        await queue.take_over(FRESH, kept="", total=1)
        return await to_thread(*call)

    monkeypatch.setattr(asyncio, "to_thread", late)
    with pytest.raises(QueueReset, match="taken over"):
        await queue.settle(Progress(trainer=FRESH, held=1, total=2))
    await queue.settle(Progress(trainer=FRESH, held=0, total=2))
    status = await queue.status()
    assert (status.held, status.counts["trained"]) == (0, 2)
    await queue.aclose()


async def test_groups_of_a_read_that_was_cancelled_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_queue, "READ_WAIT_S", 0.0)
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    await take_over(queue)
    await queue.push("a", b"")
    with sqlite3.connect(tmp_path / "queue.sqlite3") as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(queue.read(1))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    # Its thread runs on, and comes before this one or after it.
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    assert await queue.read(1) == []
    other.close()
    await queue.aclose()


async def test_groups_of_a_read_that_could_not_be_committed_are_read_again(tmp_path, monkeypatch):
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    await take_over(queue)
    await queue.push("a", b"")

    @contextmanager
    def full(db):
        yield
        raise QueueUnavailable("the queue's file: database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_queue, "transaction", full)
        with pytest.raises(QueueUnavailable):
            await queue.read(1)
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    await queue.aclose()


async def test_groups_of_a_read_that_meets_a_takeover_are_read_again(tmp_path, monkeypatch):
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    await take_over(queue)
    await queue.push("a", b"")
    to_thread = asyncio.to_thread

    async def overtaken(*call):
        monkeypatch.undo()
        found = await to_thread(*call)
        await take_over(queue)
        return found

    monkeypatch.setattr(asyncio, "to_thread", overtaken)
    assert await queue.read(1) == []
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    await queue.aclose()


async def test_a_clock_that_jumps_either_way_only_forgets_who_is_there_until_they_report():
    now = [100.0]
    queue = SQLiteQueue(clock=lambda: now[0])
    await take_over(queue)
    one, two = (ActorReport(name=name, running=0, version=0) for name in ("one", "two"))
    for jumped in (-50.0, 1e6):
        now[0] = 100.0
        assert (await queue.admit(one, 8)).granted == 8
        now[0] = jumped
        assert (await queue.status()).actors == []
        assert (await queue.admit(two, 0)).granted == 0
        await queue.admit(ActorReport(name="one", running=8, version=0), 0)
        assert (await queue.admit(two, 1)).granted == 0
        await queue.leave("one")
        await queue.leave("two")


async def test_a_file_that_is_no_queue_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("no database, and long enough to be seen as one " * 10)
    with pytest.raises(QueueError, match="cannot open the queue"):
        SQLiteQueue(path)
    with pytest.raises(QueueError, match="is its folder there"):
        SQLiteQueue(tmp_path / "missing" / "queue.sqlite3")


async def test_a_file_with_tables_of_another_version_is_refused(tmp_path):
    await SQLiteQueue(tmp_path / "q").aclose()
    with sqlite3.connect(tmp_path / "q") as other:
        other.execute("PRAGMA user_version = 1")
    with pytest.raises(QueueError, match="tables of version 1, and this Ludic those of version 2"):
        SQLiteQueue(tmp_path / "q")


async def test_a_push_and_an_admission_read_no_whole_table_of_groups():
    queue, statements = SQLiteQueue(), []
    await take_over(queue)
    queue._tables.db.set_trace_callback(statements.append)
    await queue.push("a", b"1")
    await queue.admit(ActorReport(name="one", running=0, version=0), 1)
    queue._tables.db.set_trace_callback(None)
    # Lines that begin with a comment are those of triggers.
    explained = [text for text in statements if text.startswith(("INSERT", "SELECT"))]
    assert len(explained) > 5
    plans = [queue._tables.run(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in explained]
    assert "SCAN groups" not in str(plans)


async def test_a_file_that_was_emptied_is_taken_over_again(tmp_path):
    queue, other = SQLiteQueue(tmp_path / "q"), sqlite3.connect(tmp_path / "q")
    await take_over(queue)
    await queue.push("a", b"")
    with other:
        other.execute("DELETE FROM state")
    with pytest.raises(QueueReset):
        await queue.read(1)
    await take_over(queue)
    await queue.push("b", b"")
    assert (await queue.status()).queued == 2
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    await queue.aclose()
    other.close()


def test_a_url_without_a_file_is_refused():
    with pytest.raises(QueueError, match="'file://' names no queue"):
        open_queue("file://", "k")


async def test_a_file_that_somebody_else_is_making_is_waited_for(tmp_path):
    other = sqlite3.connect(tmp_path / "q", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE theirs (x)")
    done = Timer(0.3, other.close)
    done.start()
    queue = SQLiteQueue(tmp_path / "q")
    await queue.push("a", b"")
    assert (await queue.status()).queued == 1
    await queue.aclose()
    done.join()


async def test_a_file_that_somebody_else_keeps_locked_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_queue, "BUSY_S", 0.1)
    queue, other = SQLiteQueue(tmp_path / "q"), sqlite3.connect(tmp_path / "q")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueUnavailable, match="locked"):
        await queue.push("a", b"")
    other.rollback()
    await queue.push("a", b"")
    await queue.aclose()
    other.close()
