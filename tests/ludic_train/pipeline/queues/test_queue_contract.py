"""What every queue does, in Redis, in a file and in memory."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.errors import QueueError, Superseded
from ludic_train.pipeline.queues import redis_stream, sqlite
from ludic_train.pipeline.queues.base import (
    ActorReport,
    Progress,
    Trained,
    TrainerReport,
    capacity,
)
from ludic_train.pipeline.queues.redis_stream import RedisQueue
from ludic_train.pipeline.queues.sqlite import SQLiteQueue

FRESH = TrainerReport(version=0, groups_per_batch=2, group_size=4, max_lag=3)
ACTOR = ActorReport(name="one", running=0, version=0)
numbers = count()


@pytest.fixture(params=["redis", "file", "memory"])
async def opened(request, tmp_path):
    """Opens the same queue each time, as another process would where that can be."""
    made = []

    if request.param == "redis":
        url, own = request.getfixturevalue("redis_server").url, f"q{next(numbers)}"

    def one_more(name="queue", **options):
        if request.param == "redis":
            made.append(RedisQueue(url, f"{own}-{name}", **options))
        elif request.param == "file":
            made.append(SQLiteQueue(tmp_path / name, **options))
        elif not made or name != "queue":
            made.append(SQLiteQueue(None, **options))
        return made[-1]

    yield one_more
    for queue in made:
        with suppress(Exception):
            await queue.aclose()


async def take_over(queue, trainer=FRESH, *, kept="", held=0, released=0):
    return await queue.take_over(trainer, kept=kept, held=held, released=released)


async def read(queue, size):
    found = []
    while len(found) < size:
        new = await queue.read(size - len(found))
        assert new, f"only {found}"
        found += new
    return found


def trained(*entries, lag=0):
    return tuple(Trained(id=e.id, key=e.key, lag=lag) for e in entries)


def ids(entries):
    return tuple(entry.id for entry in entries)


def keys(entries):
    return [entry.key for entry in entries]


async def push(queue, *names):
    for name in names:
        await queue.push(name, name.encode())


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


async def test_bytes_of_any_kind_arrive_as_they_were(opened):
    queue, data = opened(), bytes(range(256)) * 600
    await take_over(queue)
    await queue.push("k", data)
    assert (await read(queue, 1))[0].data == data


async def test_a_reader_that_takes_over_is_given_all_that_was_not_released(opened):
    first = opened()
    await push(first, "a", "b", "c")
    await take_over(first)
    a, b = await read(first, 2)
    after = replace(FRESH, version=1)
    await first.settle(
        Progress(trainer=after, trained=trained(a, b), held=1, released=1, release=[a.id])
    )
    second = opened()
    await take_over(second, after, released=1)
    assert keys(await read(second, 2)) == ["b", "c"]


async def test_what_a_checkpoint_covers_is_not_given_again(opened):
    first = opened()
    await push(first, "a", "b", "c")
    await take_over(first)
    _, b = await read(first, 2)
    second = opened()
    assert (await take_over(second, kept=b.id, released=2)).lost == 0
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
        first.settle(Progress(trainer=FRESH, trained=trained(a), release=[a.id], released=1)),
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


async def test_going_back_behind_what_was_released_tells_how_many_groups_are_lost(opened):
    queue = opened()
    await push(queue, "a", "b", "c")
    await take_over(queue)
    entries = await read(queue, 3)
    progress = Progress(trainer=FRESH, trained=trained(*entries), released=3, release=ids(entries))
    await queue.settle(progress)
    assert (await take_over(opened(), kept=entries[0].id, released=1)).lost == 2
    # Whoever asks again, because the answer was lost, loses no more.
    assert (await take_over(opened(), kept=entries[0].id, released=1)).lost == 0
    assert (await queue.status()).counts == {"trained": 1, "lost": 2}


async def test_a_duplicate_does_not_take_the_key_from_the_group_that_is_still_to_train_on(opened):
    queue = opened()
    await push(queue, "a", "a")
    await take_over(queue)
    first, second = await read(queue, 2)
    await queue.discard(second, "duplicate")
    assert (await take_over(queue)).owners == {}
    await queue.settle(Progress(trainer=FRESH, trained=trained(first, lag=1), held=1))
    assert (await take_over(queue, held=1)).owners == {"a": first.id}
    assert (await queue.status()).lags == {1: 1}


async def test_an_empty_queue_gives_a_resumed_run_what_is_pushed_from_now_on(opened):
    # A server that lost everything, or a new one: the checkpoint's entry is not in it.
    before = opened()
    await push(before, "a", "b")
    await take_over(before)
    _, b = await read(before, 2)
    queue = opened("new")
    await take_over(queue, kept=b.id, released=2)
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
    await take_over(queue, held=2, released=4)
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (1, 2, {"trained": 6})
    # 8 may be under way: one waits, and what is held is done with.
    assert (await queue.admit(ACTOR, 9)).granted == 7


async def test_only_the_latest_keys_are_remembered(opened, monkeypatch):
    for module in (redis_stream, sqlite):
        monkeypatch.setattr(module, "REMEMBERED_KEYS", 3)
    queue = opened()
    await push(queue, *"abcde")
    await take_over(queue)
    *done, last = await read(queue, 5)
    await queue.discard(last, "filtered")
    await queue.settle(Progress(trainer=FRESH, trained=trained(*done), held=4))
    assert list((await take_over(queue, held=4)).owners) == ["b", "c", "d"]


async def test_what_was_discarded_has_no_attempts_any_more(opened):
    queue = opened()
    await push(queue, "a")
    await take_over(queue)
    (a,) = await read(queue, 1)
    await queue.attempt([a])
    await queue.discard(a, "stale")
    assert (await take_over(queue)).attempts == {}


async def test_only_the_latest_dead_letters_are_kept(opened, monkeypatch):
    for module in (redis_stream, sqlite):
        monkeypatch.setattr(module, "DEAD_LETTERS", 2)
    queue = opened()
    await push(queue, *map(str, range(250)))
    await take_over(queue)
    for entry in await read(queue, 250):
        await queue.discard(entry, "dead", "no group")
    assert [letter.key for letter in await queue.dead_letters()] == ["248", "249"]


async def test_what_a_dead_letter_quotes_is_short(opened):
    queue = opened()
    await take_over(queue)
    await queue.push("k" * 10_000, b"")
    await queue.discard((await read(queue, 1))[0], "dead", "r" * 10_000)
    (letter,) = await queue.dead_letters()
    assert (len(letter.key), len(letter.reason)) == (4_096, 4_096)


async def test_keys_that_were_trained_on_or_dropped_are_remembered_with_their_entry(opened):
    queue = opened()
    await push(queue, "a", "b", "c", "d")
    await take_over(queue)
    a, b, c, d = await read(queue, 4)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), released=1, release=[a.id]))
    await queue.discard(b, "stale")
    # A dead entry owns no key: whoever wrote it may have named that of another's.
    await queue.discard(c, "dead", "no group")
    taken = await take_over(opened(), released=1)
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
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), held=1))
    assert (await take_over(queue)).attempts == {}


async def test_saying_the_same_twice_counts_once(opened):
    queue = opened()
    await push(queue, "a", "b")
    await take_over(queue)
    a, b = await read(queue, 2)
    progress = Progress(trainer=FRESH, trained=trained(a, lag=2), released=1, release=[a.id])
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


async def test_a_full_queue_makes_actors_wait_until_something_was_released(opened):
    queue = opened(max_queued=2)
    await take_over(queue)
    await push(queue, "a", "b")
    third = asyncio.ensure_future(queue.push("c", b"c"))
    await asyncio.sleep(0.3)
    assert not third.done()
    a, _ = await read(queue, 2)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), released=1, release=[a.id]))
    await asyncio.wait_for(third, 30)
    assert keys(await read(queue, 1)) == ["c"]


async def test_what_is_held_for_a_resumed_run_takes_no_room(opened):
    queue = opened(max_queued=2)
    await take_over(queue)
    await push(queue, "a", "b")
    a, b = await read(queue, 2)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a, b), held=2))
    await asyncio.wait_for(push(queue, "c", "d"), 30)
    assert (await queue.status()).queued == 2


async def test_a_full_queue_may_drop_the_oldest_that_nobody_has_read(opened):
    queue = opened(max_queued=3, when_full="drop-oldest")
    await take_over(queue)
    await push(queue, "a")
    assert keys(await read(queue, 1)) == ["a"]
    await push(queue, "b", "c", "d", "e")
    assert keys(await read(queue, 2)) == ["d", "e"]
    status = await queue.status()
    assert (status.queued, status.counts["dropped"]) == (3, 2)


async def test_nobody_may_begin_before_there_is_a_trainer(opened):
    admission = await opened().admit(ACTOR, 4)
    assert (admission.granted, admission.trainer) == (0, None)


async def test_no_more_is_begun_than_can_be_trained_on_in_time(opened):
    # Batches of 2 and a lag of at most 3: at version 0, 2 * (3 + 1) = 8 groups may be under way.
    queue = opened()
    await take_over(queue)
    first = await queue.admit(ACTOR, 5)
    assert (first.granted, first.trainer) == (5, FRESH)
    other = await queue.admit(replace(ACTOR, name="two"), 5)
    assert other.granted == 3
    await push(queue, "a")
    # One of the five was pushed: 4 play, 1 waits, 3 are the other's.
    assert (await queue.admit(replace(ACTOR, running=4), 5)).granted == 0
    await queue.leave("two")
    assert (await queue.admit(replace(ACTOR, running=4), 5)).granted == 3


async def test_an_actor_with_old_params_begins_less(opened):
    # Two updates behind: 2 * (3 - 2 + 1) = 4. Four behind: nothing it plays could be used.
    queue = opened()
    await take_over(queue, replace(FRESH, version=4))
    assert (await queue.admit(replace(ACTOR, version=2), 9)).granted == 4
    assert (await queue.admit(replace(ACTOR, version=0), 9)).granted == 0
    # Params newer than the trainer's are those of a run that has gone back.
    assert (await queue.admit(replace(ACTOR, version=6), 9)).granted == 8


async def test_without_a_limit_to_the_lag_the_room_is_the_limit(opened):
    queue = opened(max_queued=6)
    await take_over(queue, replace(FRESH, max_lag=None))
    await push(queue, "a")
    assert (await queue.admit(ACTOR, 9)).granted == 5


async def test_actors_are_told_of_each_retired_task_once(opened):
    queue = opened()
    await take_over(queue)
    assert (await queue.admit(ACTOR, 0)).retired == ()
    await queue.settle(Progress(trainer=FRESH, retired=["x", "y"]))
    # Repeated, because an answer was lost, and retired once more by a resumed run.
    await queue.settle(Progress(trainer=FRESH, retired=["x", "y", "z"]))
    other = opened()
    assert (await other.admit(ACTOR, 0)).retired == ("x", "y", "z")
    assert (await other.admit(replace(ACTOR, retired=2), 0)).retired == ("z",)
    assert (await other.admit(replace(ACTOR, retired=3), 0)).retired == ()
    # A trainer that takes over leaves them retired.
    await take_over(other)
    assert (await other.admit(ACTOR, 0)).retired == ("x", "y", "z")


async def test_an_admission_names_so_many_retired_tasks_and_the_next_one_the_others(
    opened, monkeypatch
):
    for module in (redis_stream, sqlite):
        monkeypatch.setattr(module, "RETIRED_AT_ONCE", 2)
    queue = opened()
    await take_over(queue)
    await queue.settle(Progress(trainer=FRESH, retired=["x", "y", "z"]))
    assert (await queue.admit(ACTOR, 0)).retired == ("x", "y")
    assert (await queue.admit(replace(ACTOR, retired=2), 0)).retired == ("z",)


@pytest.mark.parametrize(
    ("batch", "updates", "max_lag", "behind", "expected"),
    [
        (4, 1, 0, 0, 4),
        (4, 1, 0, 1, 0),
        (4, 2, 0, 0, 0),
        (4, 2, 1, 0, 4),
        (4, 2, 2, 0, 4),
        (4, 2, 3, 0, 8),
        (4, 2, 3, 1, 4),
        (4, 4, 11, 0, 12),
    ],
)
async def test_the_room_is_counted_by_one_formula(
    opened, batch, updates, max_lag, behind, expected
):
    trainer = TrainerReport(
        version=10,
        groups_per_batch=batch,
        group_size=1,
        updates_per_batch=updates,
        max_lag=max_lag,
    )
    queue = opened()
    await take_over(queue, trainer)
    report = replace(ACTOR, version=10 - behind)
    assert capacity(trainer, report.version) == expected
    assert (await queue.admit(report, 100)).granted == expected


async def test_the_status_says_what_waits_and_who_is_there(opened):
    queue = opened()
    await push(queue, "a", "b", "c", "d", "e")
    await take_over(queue)
    a, b, c = await read(queue, 3)
    now = replace(FRESH, version=7)
    await queue.settle(
        Progress(trainer=now, trained=trained(a, b, lag=1), held=1, released=1, release=[a.id])
    )
    await queue.discard(c, "stale")
    (d,) = await read(queue, 1)
    report = replace(ACTOR, version=6, groups=5, tokens=90, retired=2)
    await queue.admit(report, 0)
    status = await queue.status()
    assert (status.queued, status.pending, status.held) == (2, 1, 1)
    assert status.counts == {"trained": 2, "stale": 1}
    assert (status.lags, status.actors, status.trainer) == ({1: 2}, [report], now)
    assert d.key == "d"


async def test_the_status_of_a_queue_that_nobody_used_is_empty(opened):
    status = await opened().status()
    assert (status.queued, status.pending, status.held, status.lags) == (0, 0, 0, {})
    assert (status.counts, status.actors, status.trainer) == ({"trained": 0}, [], None)


async def test_a_queue_that_cannot_hold_a_batch_is_refused(opened):
    with pytest.raises(QueueError, match="max_queued=1 is less than the trainer's groups_per"):
        await take_over(opened(max_queued=1))


@pytest.mark.parametrize(
    ("options", "said"), [({"max_queued": 0}, "max_queued=0"), ({"when_full": "drop"}, "when_full")]
)
async def test_a_queue_without_room_or_rule_is_refused(opened, options, said):
    with pytest.raises(ConfigError, match=said):
        opened(**options)
