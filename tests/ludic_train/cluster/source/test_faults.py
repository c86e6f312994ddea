"""Poisoned, repeated and cancelled reads, and queues that lost their state."""

import asyncio
import pickle
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from queued_groups import ALGO, NEW, begin, group, names, push

from ludic_gym.errors import ConfigError
from ludic_train.cluster import ledger
from ludic_train.cluster.codec import group_to_bytes
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.errors import QueueError, QueueReset
from ludic_train.metrics import Total


class SlowToSettle(SQLiteQueue):
    """Settles when `may_settle` is set."""

    def __init__(self, path):
        super().__init__(path)
        self.may_settle = threading.Event()

    async def settle(self, progress):
        while not self.may_settle.is_set():
            await asyncio.sleep(0.01)
        await super().settle(progress)


class ReadsDuringTakeover(SQLiteQueue):
    """Has a reset at its first beat; its first read ends when the second take-over has begun."""

    def __init__(self, path):
        super().__init__(path)
        self.beats = self.takeovers = self.reads = 0
        self.begun, self.read_ended = asyncio.Event(), asyncio.Event()

    async def beat(self):
        self.beats += 1
        if self.beats == 1:
            raise QueueReset("the first beat")
        await super().beat()

    async def take_over(self, trainer, **known):
        self.takeovers += 1
        if self.takeovers == 2:
            self.begun.set()
            await self.read_ended.wait()
        return await super().take_over(trainer, **known)

    async def read(self, count):
        self.reads += 1
        found = await super().read(count)
        if self.reads == 1:
            assert found
            await self.begun.wait()
            self.read_ended.set()
        return found


async def test_groups_that_are_read_during_a_takeover_are_held_as_others_are(path, queue):
    await push(queue, group("a"), group("b"))
    source = PipelineBatchSource(ReadsDuringTakeover(path), groups_per_batch=2, group_size=2)
    await begin(source)
    assert names(await source.next_batch(ALGO)) == ["a", "b"]
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.held) == (0, 2)
    await source.aclose()


async def test_a_group_pushed_twice_is_trained_on_once(opened, queue):
    await push(queue, group("a"), group("a"), group("b"))
    source = opened()
    await begin(source)
    batch = await source.next_batch(ALGO)
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/duplicate"] == Total(1)
    await source.trained(1)
    source.state_dict()
    resumed = opened()
    resumed.load_state_dict(source.state_dict())
    await push(queue, group("b"), group("c"), group("d"))
    await begin(resumed, 1)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d"]


async def test_poison_goes_to_the_dead_letters_with_its_reason(opened, queue):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('the pickle was run')",))

    good = group_to_bytes(group("cut"))
    await queue.push("bomb", pickle.dumps(Bomb()))
    await queue.push("cut", good[:-1])
    await queue.push("schema", good[:4] + b"\x63" + good[5:])
    await queue.push("huge", bytes(70 * 2**20))
    await queue.push("liar", good)
    await queue.push("vocabulary", group_to_bytes(group("vocabulary", token=300)))
    await queue.push("ageless", group_to_bytes(group("ageless", version=None)))
    await push(queue, group("cut"), group("liar"))
    source = opened(vocab_size=300)
    await begin(source)
    batch = await source.next_batch(ALGO)
    # What a liar says does not keep the honest one of that name away.
    assert names(batch) == ["cut", "liar"]
    assert batch.metrics["groups/dead"] == Total(7)
    reasons = {letter.key: letter.reason for letter in await queue.dead_letters()}
    for key, said in {
        "bomb": "not a group",
        "cut": "truncated or damaged",
        "schema": "schema 99",
        "huge": "more than max_bytes",
        "liar": "says its key is 'cut'",
        "vocabulary": "a token id is 300; the model has 300",
        "ageless": "do not say which version",
    }.items():
        assert said in reasons[key]


@pytest.mark.usefixtures("brief_readers")
async def test_a_group_that_trainers_die_of_is_buried(opened, queue):
    await push(queue, group("deadly"))
    for _ in range(2):
        source = opened(groups_per_batch=1, max_attempts=2)
        await begin(source)
        assert names(await source.next_batch(ALGO)) == ["deadly"]
        await source.aclose()
    await push(queue, group("next"))
    source = opened(groups_per_batch=1, max_attempts=2)
    await begin(source)
    assert names(await source.next_batch(ALGO)) == ["next"]
    (letter,) = await queue.dead_letters()
    assert (letter.key, letter.reason) == ("deadly", "2 trainers died with it in their batch")


async def test_a_cancelled_wait_for_a_batch_skips_no_group(opened, queue):
    await push(queue, group("a"))
    source = opened()
    await begin(source)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.next_batch(ALGO), 0.5)
    await push(queue, group("b"), group("c"))
    assert names(await source.next_batch(ALGO)) == ["a", "b"]


async def test_a_batch_that_came_when_nobody_waited_any_more_is_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await begin(source)
    waiting = asyncio.ensure_future(source.next_batch(ALGO))
    await asyncio.sleep(0)
    # While this loop computes, the batch becomes ready; its waiter is cancelled before it looks.
    while not source._coming.done():
        time.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await source.trained(0)
    assert (await queue.status()).held == 0
    assert names(await source.next_batch(ALGO)) == ["a", "b"]
    assert names(await source.next_batch(ALGO)) == ["c", "d"]


async def test_all_batches_that_were_given_are_trained_on_when_the_word_comes(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    await source.next_batch(ALGO)
    await source.trained(1)
    assert (await queue.status()).counts == {"trained": 4}
    assert source.state_dict()["trained"] == 4


async def test_what_a_cancelled_call_did_not_tell_the_queue_the_next_one_does(path, queue):
    await push(queue, *(group(key) for key in "abcd"))
    slow = SlowToSettle(path)
    source = PipelineBatchSource(slow, groups_per_batch=2, group_size=2, hold=0)
    await begin(source)
    await source.next_batch(ALGO)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.trained(1), 0.2)
    assert (await queue.status()).queued == 4
    slow.may_settle.set()
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.counts, status.lags) == (2, {"trained": 2}, {0: 2})
    await source.aclose()


async def test_a_queue_that_forgot_its_reader_is_read_on_where_it_was(opened, path, queue, caplog):
    await push(queue, *(group(key) for key in "abcdef"))
    source, seen = opened(), []
    await begin(source)
    for version in range(4):
        seen += names(await source.next_batch(ALGO))
        if version == 1:
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("DELETE FROM state")
            await push(queue, group("g"), group("h"))
        await source.trained(0)
    assert seen == list("abcdefgh")
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (0, 8, {"trained": 8})
    assert caplog.text.count("taking the queue over again") == 1


async def test_a_duplicate_never_replaces_the_group_that_it_repeats(opened, queue):
    await push(queue, group("a"), group("a"), group("b"))
    killed = opened()
    await begin(killed)
    assert names(await killed.next_batch(ALGO)) == ["a", "b"]
    following = opened()
    await begin(following)
    assert names(await following.next_batch(ALGO)) == ["a", "b"]


async def test_only_as_many_keys_are_kept_in_memory_as_the_queue_remembers(
    opened, queue, monkeypatch
):
    monkeypatch.setattr(ledger, "REMEMBERED_KEYS", 3)
    source = opened(hold=0)
    await begin(source)
    for i in range(0, 20, 2):
        await push(queue, group(f"g{i}"), group(f"g{i + 1}"))
        await source.next_batch(ALGO)
        await source.trained(0)
    await push(queue, group("g19"), group("g0"), group("g20"))
    assert names(await source.next_batch(ALGO)) == ["g0", "g20"]


async def test_what_a_stranger_wrote_is_quoted_in_short(opened, queue, caplog):
    await queue.push("k" * 10_000, group_to_bytes(group("short")))
    await push(queue, group("a"), group("b"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    assert len(caplog.text) < 2_000
    assert "(10000 characters)" in caplog.text


async def test_a_beginning_that_failed_is_not_taken_for_one(opened):
    source = opened()
    source.load_state_dict({"cursor": "1700-0", "trained": 3, "history": NEW})
    for _ in range(2):
        with pytest.raises(QueueError, match="none of a file"):
            await begin(source, 3)
    with pytest.raises(ConfigError, match="call begin"):
        await source.next_batch(ALGO)


async def test_a_source_may_be_closed_twice(opened):
    source = opened()
    await begin(source)
    await source.aclose()
    await source.aclose()
