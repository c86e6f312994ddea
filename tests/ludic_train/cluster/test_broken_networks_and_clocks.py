"""A network that falls silent or breaks, and clocks that jump, while real processes run."""

import asyncio
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
from faults.scene import BATCH, UPDATES, Processes, Scene, assert_undisturbed, push
from faulty_network import BACK, THERE, Network
from redis.asyncio import Redis
from redis_server import RedisServer, needs_redis, runs_with

from ludic_train.cluster.queues import redis_queue
from ludic_train.cluster.queues.redis_queue import RedisQueue

pytestmark = needs_redis
TIMEOUT_S = 0.8
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.fixture
async def network(scene, monkeypatch):
    """The network between the scene's trainer and its server, if it uses the network's URL."""
    monkeypatch.setattr(redis_queue, "TIMEOUT_S", TIMEOUT_S)
    network = Network(scene.server.port)
    await network.start()
    yield network
    await network.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "ways",
    [
        pytest.param((THERE,), id="requests are lost", marks=pytest.mark.slow),
        pytest.param((BACK,), id="answers are lost", marks=pytest.mark.slow),
        pytest.param((THERE, BACK), id="both are lost"),
    ],
)
async def test_a_network_that_falls_silent_costs_time_alone(scene, network, undisturbed, ways):
    pid = scene.train(url=network.url, timeout_s=TIMEOUT_S)
    far = RedisQueue(network.url, scene.key)
    await push(far, *range(7))
    await scene.at_version(3)
    network.silence(*ways)
    pushing = asyncio.create_task(push(far, *range(7, UPDATES * BATCH)))
    await asyncio.sleep(2.5 * TIMEOUT_S)
    network.go_on()
    await asyncio.wait_for(pushing, 120)
    await scene.finished(pid)
    await far.aclose()
    await assert_undisturbed(scene, undisturbed)


@pytest.mark.parametrize("seed", range(3))
async def test_a_network_that_breaks_in_the_middle_of_messages_costs_time_alone(
    scene, network, undisturbed, seed
):
    dice, far = random.Random(seed), RedisQueue(network.url, scene.key)
    pid = scene.train(url=network.url, timeout_s=TIMEOUT_S)
    await push(far, 0, 1, 2)
    await scene.at_version(1)
    pushing = asyncio.create_task(push(far, *range(3, UPDATES * BATCH)))
    while network.cuts < 8 and not (scene.folder / "digest").exists():
        cuts = network.cuts
        network.cut_after(dice.choice((THERE, BACK)), dice.randrange(1, 600))
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while network.cuts == cuts:
                    await asyncio.sleep(0.01)
    network.cut_after(THERE, None)
    network.cut_after(BACK, None)
    await asyncio.wait_for(pushing, 120)
    await scene.finished(pid)
    await far.aclose()
    await assert_undisturbed(scene, undisturbed)
    assert network.cuts >= 3


def clock_of(path):
    """Environment variables with which a process takes its clock from a file."""
    path.write_text("+0")
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(path),
        "FAKETIME_NO_CACHE": "1",
        # It is the wall's clock that jumps; the monotonic one never does.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


async def train_while_the_clock_jumps(scene, clock, days_off):
    pid = scene.train()
    for number, jump in enumerate(("+400d", "-400d", "+1d", "-2d")):
        await push(scene.queue, *range(4 * number, 4 * number + 3))
        await scene.at_version(2 * number + 1)
        clock.write_text(jump)
        assert f"{await days_off():+d}d" == jump
        await push(scene.queue, 4 * number + 3)
    await scene.finished(pid)


@pytest.mark.slow
@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (apt: faketime)")
async def test_the_clock_of_a_server_may_jump_while_it_runs(processes, tmp_path, undisturbed):
    clock = tmp_path / "clock"
    if not runs_with(environment := clock_of(clock)):
        pytest.skip("this redis-server does not start with libfaketime: its jemalloc clashes")
    server = RedisServer(tmp_path, environment=environment)
    scene, asking = Scene(processes, server, tmp_path / "run", "k"), Redis.from_url(server.url)

    async def days_off():
        return round(((await asking.time())[0] - time.time()) / 86_400)

    try:
        await train_while_the_clock_jumps(scene, clock, days_off)
        await assert_undisturbed(scene, undisturbed)
    finally:
        await asking.aclose()
        await scene.queue.aclose()
        server.stop()


@pytest.mark.slow
@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (apt: faketime)")
async def test_the_clock_of_a_trainer_may_jump_while_it_runs(redis_server, tmp_path, undisturbed):
    clock = tmp_path / "clock"
    jumping = Processes(**clock_of(clock))
    scene = Scene(jumping, redis_server, tmp_path / "run", "clock-of-a-trainer")

    async def days_off():
        return round((jumping.now() - time.time()) / 86_400)

    try:
        await train_while_the_clock_jumps(scene, clock, days_off)
        await assert_undisturbed(scene, undisturbed)
    finally:
        await scene.queue.aclose()
        jumping.close()
