"""Two trainers on one queue settle it: the younger wins once, the elder says so and stays down."""

import asyncio
import signal

import pytest
from faults.scene import BATCH, UPDATES, Scene, assert_undisturbed, push
from queue_calls import take_over
from redis_server import needs_redis

from ludic_train.cluster.queues import redis_queue, retry, sqlite_queue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.errors import Superseded
from ludic_train.sources.base import Pace


async def test_a_reader_that_took_over_from_a_living_one_stays_while_it_lives(opened_readers):
    elder, younger, restarted = opened_readers
    await take_over(elder)
    await younger.claim()
    with pytest.raises(Superseded, match="another trainer has taken this queue over"):
        await elder.beat()
    for _ in range(2):
        trying = asyncio.ensure_future(restarted.claim())
        while not trying.done():
            await younger.beat()
            await asyncio.sleep(0.05)
        with pytest.raises(Superseded, match=r"runs itself; this one stays down\. Stop the other"):
            await trying
    # The winner may take over again, and once it is dead its queue is free.
    await take_over(younger)
    await restarted.claim()
    with pytest.raises(Superseded):
        await younger.beat()


async def test_a_winner_that_was_silent_keeps_what_it_won(opened_readers):
    elder, younger, restarted = opened_readers
    await take_over(elder)
    await younger.claim()
    await asyncio.sleep(2 * retry.READER_ALIVE_S)
    await take_over(younger)
    trying = asyncio.ensure_future(restarted.claim())
    while not trying.done():
        await younger.beat()
        await asyncio.sleep(0.05)
    with pytest.raises(Superseded, match="this one stays down"):
        await trying


async def test_a_trainer_that_loads_for_long_keeps_the_queue_that_it_claimed(
    opened_readers, monkeypatch
):
    monkeypatch.setattr(retry, "BEAT_S", 0.1)
    elder, younger, restarted = opened_readers
    await take_over(elder)
    source = PipelineBatchSource(younger, groups_per_batch=1, group_size=1)
    source.claim()
    await asyncio.sleep(2 * retry.READER_ALIVE_S)
    with pytest.raises(Superseded, match="this one stays down"):
        await restarted.claim()
    await source.begin(Pace(version=0, updates_per_batch=1, oldest_lag=0, max_lag=None))
    await source.aclose()
    # Its signs of life end with it.
    await asyncio.sleep(2 * retry.READER_ALIVE_S)
    await restarted.claim()


@pytest.fixture(params=["redis", "file"])
async def opened_readers(request, tmp_path, brief_readers):
    """Three readers of one queue, each in the place of a process."""
    if request.param == "redis":
        url, key = request.getfixturevalue("redis_server").url, f"two-{tmp_path.name}"
        queues = [redis_queue.RedisQueue(url, key) for _ in range(3)]
    else:
        queues = [sqlite_queue.SQLiteQueue(tmp_path / "queue") for _ in range(3)]
    yield queues
    for queue in queues:
        await queue.aclose()


@pytest.mark.long
@needs_redis
async def test_a_supervisor_that_restarts_the_elder_starts_no_war(scene, undisturbed):
    await push(scene.queue, *range(8))
    elder = scene.train()
    await scene.at_version(2)
    # The elder holds a checkpoint of update 2 or 4, and the younger continues from there; or it is
    # about to save its first, which it may no longer, and the younger begins anew.
    younger = scene.train()
    # Its queue was taken, or where it was about to save, its folder.
    assert "Superseded: another trainer has" in await scene.superseded(elder)
    assert "this one stays down" in await scene.superseded(scene.train())
    await push(scene.queue, *range(8, UPDATES * BATCH))
    await scene.finished(younger)
    await assert_undisturbed(scene, undisturbed)


@needs_redis
async def test_a_wedged_trainer_that_wakes_up_ends_and_changes_nothing(scene, undisturbed):
    await push(scene.queue, *range(8))
    # Not while it saves, since the younger one removes what was half saved.
    wedged = scene.train(point="stop:read:4")
    await scene.is_stopped(wedged)
    younger = scene.train()
    await push(scene.queue, *range(8, UPDATES * BATCH))
    await scene.finished(younger)
    scene.processes.signal(wedged, signal.SIGCONT)
    await scene.superseded(wedged)
    await assert_undisturbed(scene, undisturbed)


@needs_redis
async def test_two_actors_of_one_name_share_one_admission(scene: Scene):
    pid = scene.train(updates=UPDATES, max_lag=2, point="read:3")
    actors = [scene.act(name="same", first=1_000 * i, delay_s=0.2) for i in range(2)]
    assert await scene.processes.end(pid) == -signal.SIGKILL
    # Nobody reads now: the actors push all that they were admitted.
    async with asyncio.timeout(60):
        while (status := await scene.queue.status()).queued < 6 or any(
            actor.running for actor in status.actors
        ):
            await asyncio.sleep(0.1)
    names = {actor.name for actor in status.actors}
    assert len(names) == 2
    assert all(name.startswith("same-") for name in names)
    # Batches of 2 and a lag of 2 admit 2 * (2 + 1) groups.
    assert status.queued == 6
    for each in actors:
        assert await scene.processes.end(each, signal.SIGTERM) == 0
