"""Batches of a queue: order, age, checkpoints and resumes."""

from dataclasses import replace

import pytest
from queued_groups import ALGO, begin, group, names, push

from ludic_train.algorithms.presets import rejection_sampling
from ludic_train.cluster.queues.base import ActorReport, TrainerReport
from ludic_train.errors import Superseded
from ludic_train.metrics import Peak, Stat, Total


async def test_a_batch_is_the_rows_of_the_oldest_groups(opened, queue):
    await push(queue, group("a"), group("b", rewards=(0.0, 1.0, 2.0)), group("c"))
    source = opened()
    await begin(source)
    batch = await source.next_batch(ALGO)
    assert [item.group for item in batch.items] == ["a", "a", "b", "b", "b"]


async def test_groups_wait_in_the_queue_until_updates_were_made_from_them(opened, queue):
    await push(queue, group("a"), group("b"), group("c"), group("d"))
    source = opened(hold=0)
    await begin(source)
    await source.next_batch(ALGO)
    assert (await queue.status()).queued == 4
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (2, 0, {"trained": 2})
    assert status.trainer.version == 1


async def test_a_killed_trainer_leaves_its_groups_to_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await begin(killed)
    assert names(await killed.next_batch(ALGO)) == ["a", "b"]
    await killed.trained(1)
    assert names(await killed.next_batch(ALGO)) == ["c", "d"]
    following = opened()
    await begin(following)
    assert names(await following.next_batch(ALGO)) == ["a", "b"]
    with pytest.raises(Superseded):
        await killed.trained(2)


async def test_a_resumed_trainer_goes_on_after_its_checkpoint(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await begin(killed)
    await killed.next_batch(ALGO)
    await killed.trained(1)
    checkpoint = killed.state_dict()
    await killed.next_batch(ALGO)
    await killed.trained(2)
    resumed = opened()
    resumed.load_state_dict(checkpoint)
    await begin(resumed, 1)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d"]
    assert names(await resumed.next_batch(ALGO)) == ["e", "f"]
    assert (await queue.status()).counts["trained"] == 2


async def test_groups_are_released_when_the_checkpoint_after_theirs_begins(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    source = opened()
    await begin(source)
    held = []
    for version in (1, 2, 3):
        await source.next_batch(ALGO)
        await source.trained(version)
        held.append((await queue.status()).held)
        source.state_dict()
    # The state of version 1 is known to be on disk when that of version 2 is asked for.
    assert held == [2, 4, 4]


async def test_what_was_released_before_a_checkpoint_is_counted_as_lost(opened, queue, caplog):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened(hold=1)
    await begin(killed)
    for version in (1, 2):
        await killed.next_batch(ALGO)
        await killed.trained(version)
    anew = opened(hold=1)
    await begin(anew)
    # a, b and c are gone, d was held.
    batch = await anew.next_batch(ALGO)
    assert names(batch) == ["d", "e"]
    assert batch.metrics["groups/lost"] == Total(3)
    assert "3 groups were trained on after the state" in caplog.text


async def test_groups_that_would_be_too_old_are_dropped_whole_and_counted(opened, queue):
    # Two updates are made from a batch; at version 6 the last is made at 7, and 7 - 5 <= 2.
    parts = group("x", version=6).trajectories, group("y").trajectories
    mixed = replace(group("half-old"), trajectories=(*parts[0], *parts[1]))
    fresh = [group("a", version=5), group("b", version=6)]
    await push(queue, group("old", version=4), mixed, *fresh)
    source = opened()
    await begin(source, 6, updates=2)
    batch = await source.next_batch(ALGO)
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/stale"] == Total(2)
    assert (batch.metrics["lag"], batch.metrics["lag/max"]) == (Stat(3, 2), Peak(2))
    await source.trained(8)
    status = await queue.status()
    assert (status.counts["stale"], status.lags) == (2, {1: 1, 2: 1})


async def test_a_group_of_whole_and_filtered_rollouts_keeps_the_whole_ones(opened, queue):
    await push(queue, group("a", rewards=(0.0, 3.0, 1.0)), group("b", rewards=(-1.0,)))
    source = opened()
    await begin(source)
    batch = await source.next_batch(rejection_sampling(best=2))
    assert (names(batch), len(batch.items)) == (["a"], 2)


async def test_a_resumed_run_may_have_other_batches(opened, queue):
    await push(queue, *(group(key) for key in "abcdefg"))
    killed = opened()
    await begin(killed)
    await killed.next_batch(ALGO)
    await killed.trained(1)
    resumed = opened(groups_per_batch=3)
    resumed.load_state_dict(killed.state_dict())
    await begin(resumed, 1, max_lag=4, updates=3)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d", "e"]
    await resumed.trained(4)
    status = await queue.status()
    assert (status.held, status.counts) == (3, {"trained": 5})
    # At version 1, the last of three updates is made at 3.
    assert status.lags == {0: 2, 3: 3}


async def test_actors_are_told_of_the_trainers_pace_and_group_size(opened, queue):
    source = opened(groups_per_batch=4, group_size=8)
    await begin(source, 7, max_lag=5, updates=3)
    told = await queue.admit(ActorReport(name="one", running=0, version=7), wanted=1)
    assert told.trainer == TrainerReport(
        version=7, groups_per_batch=4, group_size=8, updates_per_batch=3, max_lag=5
    )
