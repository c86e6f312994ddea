"""Two trainers on one queue settle it: the younger wins once, the elder says so and stays down."""

import asyncio
import signal

import pytest
from faults.scene import BATCH, UPDATES, Scene, assert_undisturbed, push
from queue_calls import take_over
from redis_server import needs_redis

from ludic_train.commands.train import SUPERSEDED
from ludic_train.errors import Superseded
from ludic_train.pipeline.queues import redis_stream, sqlite


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


@pytest.fixture(params=["redis", "file"])
async def opened_readers(request, tmp_path, brief_readers):
    """Three readers of one queue, each in the place of a process."""
    if request.param == "redis":
        url, key = request.getfixturevalue("redis_server").url, f"two-{tmp_path.name}"
        queues = [redis_stream.RedisQueue(url, key) for _ in range(3)]
    else:
        queues = [sqlite.SQLiteQueue(tmp_path / "queue") for _ in range(3)]
    yield queues
    for queue in queues:
        await queue.aclose()


@pytest.mark.long
@needs_redis
async def test_a_supervisor_that_restarts_the_elder_starts_no_war(scene, undisturbed):
    await push(scene.queue, *range(8))
    elder = scene.train()
    await scene.at_version(2)
    # The elder holds a checkpoint of update 2 or 4; the younger continues from there.
    younger = scene.train()
    assert await scene.processes.end(elder) == SUPERSEDED
    # Its queue was taken, or where it was about to save, its folder.
    assert "Superseded: another trainer has" in (scene.folder / "log").read_text()
    assert await scene.processes.end(scene.train()) == SUPERSEDED
    assert "this one stays down" in (scene.folder / "log").read_text()
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
    assert await scene.processes.end(wedged) == SUPERSEDED
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
