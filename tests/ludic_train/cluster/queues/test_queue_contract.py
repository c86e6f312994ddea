"""Entries, readers, keys and dead letters of every queue: in Redis, in a file and in memory."""

import asyncio
from dataclasses import replace

import pytest
from queue_calls import ACTOR, FRESH, ids, keys, push, read, take_over, trained

from ludic_train.cluster.queues import redis_queue, sqlite_queue
from ludic_train.cluster.queues.base import Progress
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.errors import QueueError, Superseded


async def test_groups_are_read_in_the_order_in_which_they_were_pushed(opened):
    queue = opened()
    await push(queue, "a", "b")
    await take_over(queue)
    await push(opened(), "c")
    entries = await read(queue, 3)
    assert [(e.key, e.data, e.attempts) for e in entries] == [
        ("a", b"a", 0),
        ("b", b"b", 0),
        ("c", b"c", 0),
    ]
    assert [e.id for e in entries] == sorted(e.id for e in entries)


async def test_a_reader_that_takes_over_is_given_all_that_was_not_released(opened):
    first = opened()
    await push(first, "a", "b", "c")
    await take_over(first)
    a, b = await read(first, 2)
    after = replace(FRESH, version=1)
    await first.settle(
        Progress(trainer=after, trained=trained(a, b), held=1, total=2, release=[a.id])
    )
    second = opened()
    await take_over(second, after, total=1)
    assert keys(await read(second, 2)) == ["b", "c"]


async def test_what_a_checkpoint_covers_is_not_given_again(opened):
    first = opened()
    await push(first, "a", "b", "c")
    await take_over(first)
    _, b = await read(first, 2)
    second = opened()
    assert (await take_over(second, kept=b.id, total=2)).lost == 0
    assert keys(await read(second, 1)) == ["c"]
    status = await second.status()
    assert (status.queued, status.counts) == (1, {"trained": 2})


async def test_a_reader_that_was_replaced_can_change_nothing(opened):
    first, second = opened(), opened()
    if first is second:
        pytest.skip("what is in memory has one object, and so one reader")
    await push(first, "a")
    await take_over(first)
    (a,) = await read(first, 1)
    await take_over(second)
    for forbidden in (
        first.read(1),
        first.attempt([a]),
        first.settle(Progress(trainer=FRESH, trained=trained(a), release=[a.id], total=1)),
        first.discard(a, "stale"),
    ):
        with pytest.raises(Superseded, match="another trainer"):
            await forbidden
    assert keys(await read(second, 1)) == ["a"]


async def test_a_reader_that_is_replaced_while_it_waits_takes_nothing_away(opened):
    first, second = opened(), opened()
    if first is second:
        pytest.skip("what is in memory has one object, and so one reader")
    await take_over(first)
    waiting = asyncio.ensure_future(first.read(1))
    await asyncio.sleep(0.1)
    await take_over(second)
    await push(second, "a")
    with pytest.raises(Superseded):
        await waiting
    assert keys(await read(second, 1)) == ["a"]


@pytest.mark.usefixtures("brief_readers")
async def test_going_back_behind_what_was_released_tells_how_many_groups_are_lost(opened):
    queue = opened()
    await push(queue, "a", "b", "c")
    await take_over(queue)
    entries = await read(queue, 3)
    progress = Progress(trainer=FRESH, trained=trained(*entries), total=3, release=ids(entries))
    await queue.settle(progress)
    assert (await take_over(opened(), kept=entries[0].id, total=1)).lost == 2
    # Whoever asks again, because the answer was lost, loses no more.
    assert (await take_over(opened(), kept=entries[0].id, total=1)).lost == 0
    assert (await queue.status()).counts == {"trained": 1, "lost": 2}


async def test_a_duplicate_does_not_take_the_key_from_the_group_that_is_still_to_train_on(opened):
    queue = opened()
    await push(queue, "a", "a")
    await take_over(queue)
    first, second = await read(queue, 2)
    await queue.discard(second, "duplicate")
    assert (await take_over(queue)).owners == {}
    await queue.settle(Progress(trainer=FRESH, trained=trained(first, lag=1), held=1, total=1))
    assert (await take_over(queue, held=[first.id], total=1)).owners == {"a": first.id}
    assert (await queue.status()).lags == {1: 1}


async def test_an_empty_queue_gives_a_resumed_run_what_is_pushed_from_now_on(opened):
    # A server that lost everything, or a new one: the checkpoint's entry is not in it.
    before = opened()
    await push(before, "a", "b")
    await take_over(before)
    _, b = await read(before, 2)
    queue = opened("new")
    await take_over(queue, kept=b.id, total=2)
    await push(queue, "c")
    (c,) = await read(queue, 1)
    assert c.key == "c"
    assert c.id > b.id


async def test_a_checkpoint_of_another_kind_of_queue_is_refused(opened):
    queue = opened()
    cursor = "1700-0" if isinstance(queue, SQLiteQueue) else "17"
    with pytest.raises(QueueError, match=f"'{cursor}', which is none of a .*resume with the kind"):
        await take_over(queue, kept=cursor)


async def test_what_is_held_when_the_queue_is_taken_over_counts_as_before(opened):
    queue = opened()
    await push(queue, "a", "b", "c")
    await take_over(queue)
    a, b = await read(queue, 2)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a, b), held=2, total=6))
    await take_over(queue, held=ids([a, b]), total=6)
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (1, 2, {"trained": 6})
    # 8 may be under way: one waits, and what is held is done with.
    assert (await queue.admit(ACTOR, 9)).granted == 7


async def test_only_the_latest_keys_are_remembered(opened, monkeypatch):
    for module in (redis_queue, sqlite_queue):
        monkeypatch.setattr(module, "REMEMBERED_KEYS", 3)
    queue = opened()
    await push(queue, *"abcde")
    await take_over(queue)
    *done, last = await read(queue, 5)
    await queue.discard(last, "filtered")
    await queue.settle(Progress(trainer=FRESH, trained=trained(*done), held=4, total=4))
    assert list((await take_over(queue, held=ids(done), total=4)).owners) == ["b", "c", "d"]


async def test_what_was_discarded_has_no_attempts_any_more(opened):
    queue = opened()
    await push(queue, "a")
    await take_over(queue)
    (a,) = await read(queue, 1)
    await queue.attempt([a])
    await queue.discard(a, "stale")
    assert (await take_over(queue)).attempts == {}


async def test_only_the_latest_dead_letters_are_kept(opened, monkeypatch):
    for module in (redis_queue, sqlite_queue):
        monkeypatch.setattr(module, "DEAD_LETTERS", 2)
    queue = opened()
    await push(queue, *map(str, range(250)))
    await take_over(queue)
    for entry in await read(queue, 250):
        await queue.discard(entry, "dead", "no group")
    assert [letter.key for letter in await queue.dead_letters()] == ["248", "249"]


async def test_keys_that_were_trained_on_or_dropped_are_remembered_with_their_entry(opened):
    queue = opened()
    await push(queue, "a", "b", "c", "d")
    await take_over(queue)
    a, b, c, d = await read(queue, 4)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), total=1, release=[a.id]))
    await queue.discard(b, "stale")
    # A dead entry owns no key: whoever wrote it may have named that of another's.
    await queue.discard(c, "dead", "no group")
    taken = await take_over(opened(), total=1)
    assert taken.owners == {"a": a.id, "b": b.id}
    assert d.key not in taken.owners


async def test_attempts_are_counted_only_of_what_was_in_a_batch(opened):
    queue = opened()
    await push(queue, "a", "b")
    await take_over(queue)
    a, _ = await read(queue, 2)
    await queue.attempt([a])
    assert (await take_over(queue)).attempts == {a.id: 1}
    await queue.attempt([replace(a, attempts=1)])
    taken = await take_over(queue)
    assert taken.attempts == {a.id: 2}
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), held=1, total=1))
    assert (await take_over(queue)).attempts == {}


async def test_saying_the_same_twice_counts_once(opened):
    queue = opened()
    await push(queue, "a", "b")
    await take_over(queue)
    a, b = await read(queue, 2)
    progress = Progress(trainer=FRESH, trained=trained(a, lag=2), total=1, release=[a.id])
    for _ in range(2):
        await queue.settle(progress)
        await queue.discard(b, "dead", "no group")
    status = await queue.status()
    assert (status.lags, status.counts) == ({2: 1}, {"trained": 1, "dead": 1})
    assert [letter.key for letter in await queue.dead_letters()] == ["b"]


async def test_dead_letters_say_what_and_why_and_keep_only_the_head(opened):
    queue = opened()
    await take_over(queue)
    await queue.push("bad", b"x" * 10_000)
    (entry,) = await read(queue, 1)
    await queue.discard(entry, "dead", "not a group")
    (letter,) = await queue.dead_letters()
    assert (letter.id, letter.key, letter.reason) == (entry.id, "bad", "not a group")
    assert (letter.size, letter.head) == (10_000, b"x" * 4_096)
