"""Room, admission and status of every queue: in Redis, in a file and in memory."""

import asyncio
from dataclasses import replace

import pytest
from queue_calls import ACTOR, FRESH, keys, push, read, take_over, trained

from ludic_gym.errors import ConfigError
from ludic_train.cluster.queues import redis_queue, sqlite_queue
from ludic_train.cluster.queues.base import Progress, TrainerReport, capacity
from ludic_train.errors import QueueError


async def test_a_full_queue_makes_actors_wait_until_something_was_released(opened):
    queue = opened(max_queued=2)
    await take_over(queue)
    await push(queue, "a", "b")
    third = asyncio.ensure_future(queue.push("c", b"c"))
    await asyncio.sleep(0.3)
    assert not third.done()
    a, _ = await read(queue, 2)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a), total=1, release=[a.id]))
    await asyncio.wait_for(third, 30)
    assert keys(await read(queue, 1)) == ["c"]


async def test_what_is_held_for_a_resumed_run_takes_no_room(opened):
    queue = opened(max_queued=2)
    await take_over(queue)
    await push(queue, "a", "b")
    a, b = await read(queue, 2)
    await queue.settle(Progress(trainer=FRESH, trained=trained(a, b), held=2, total=2))
    await asyncio.wait_for(push(queue, "c", "d"), 30)
    assert (await queue.status()).queued == 2


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


async def test_an_actor_without_room_is_woken_when_the_trainer_makes_some(opened):
    queue, other = opened(), opened()
    await take_over(queue)
    assert (await queue.admit(ACTOR, 8)).granted == 8
    assert (await other.admit(replace(ACTOR, name="two"), 2)).granted == 0
    waking = asyncio.ensure_future(other.woken("two"))
    await push(queue, "a", "b")
    await queue.admit(replace(ACTOR, running=6), 0)
    a, b = await read(queue, 2)
    done = Progress(trainer=replace(FRESH, version=1), trained=trained(a, b), held=2, total=2)
    await queue.settle(done)
    async with asyncio.timeout(4):
        assert await waking
    # Two were trained on, one update behind: 2 * (3 - 1 + 1) = 6 are played already.
    assert (await other.admit(replace(ACTOR, name="two", version=1), 2)).granted == 2


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


async def test_actors_are_told_the_levels_of_the_trainer_until_it_has_others(opened):
    queue, first, second = opened(), '{"ludic/ConnectFour-v0": 0}', '{"ludic/ConnectFour-v0": 1}'
    await take_over(queue, replace(FRESH, levels=first))
    assert (await queue.admit(ACTOR, 0)).trainer.levels == first
    await queue.settle(Progress(trainer=replace(FRESH, levels=second), retired=["x"]))
    admission = await opened().admit(ACTOR, 0)
    assert (admission.trainer.levels, admission.retired) == (second, ("x",))
    assert (await queue.status()).trainer == replace(FRESH, levels=second)
    await take_over(queue)
    assert (await queue.admit(ACTOR, 0)).trainer.levels == ""


async def test_an_admission_names_so_many_retired_tasks_and_the_next_one_the_others(
    opened, monkeypatch
):
    for module in (redis_queue, sqlite_queue):
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
        Progress(trainer=now, trained=trained(a, b, lag=1), held=1, total=2, release=[a.id])
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


async def test_a_queue_without_room_is_refused(opened):
    with pytest.raises(ConfigError, match="max_queued=0"):
        opened(max_queued=0)
