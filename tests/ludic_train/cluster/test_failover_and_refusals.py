"""A replica that lagged takes the place of its Redis; a Redis refuses to write.

The trainers, actors and servers are real processes, with a network between them that can be
silenced and led elsewhere.
"""

import asyncio
import signal

import pytest
from faults.scene import BATCH, UPDATES, Scene, assert_undisturbed, each_twice, push
from faulty_network import BACK, THERE, Network
from redis.asyncio import Redis
from redis_server import RedisServer, needs_redis

from ludic_train.cluster.queues.redis_queue import RedisQueue

pytestmark = needs_redis


class Pair:
    """A Redis with a replica, which scenes reach at one address; the link between them is slow."""

    def __init__(self, folder):
        self._folder = folder
        (folder / "primary").mkdir()
        (folder / "replica").mkdir()
        self.primary = RedisServer(folder / "primary")
        self.front, self.link = Network(self.primary.port), Network(self.primary.port)

    async def start(self):
        await self.front.start()
        await self.link.start()
        options = ("--replicaof", f"127.0.0.1 {self.link.port}")
        self.replica = RedisServer(self._folder / "replica", *options)
        self.url = self.front.url

    async def fall_behind(self, key):
        """Let the replica have all that there is, and nothing after it."""
        async with Redis.from_url(self.primary.url) as one, Redis.from_url(self.replica.url) as two:
            async with asyncio.timeout(60):
                while not (found := await facts(one, key))["trained"] or found != await facts(
                    two, key
                ):
                    await asyncio.sleep(0.05)
        self.link.silence(THERE, BACK)

    async def fail_over(self):
        """Lose the server for good; the replica takes its place, at the same address."""
        self.primary.kill()
        async with Redis.from_url(self.replica.url) as replica:
            await replica.replicaof("NO", "ONE")
        self.front.lead_to(self.replica.port)

    async def close(self):
        await self.front.close()
        await self.link.close()
        self.primary.stop()
        self.replica.stop()


async def facts(server, key):
    """Length of a queue, and the number of groups that are settled."""
    return {
        "length": await server.xlen(f"{{{key}}}:groups"),
        "trained": await server.hget(f"{{{key}}}:state", "trained"),
    }


@pytest.fixture
async def pair(tmp_path):
    pair = Pair(tmp_path)
    await pair.start()
    yield pair
    await pair.close()


@pytest.fixture
async def replicated(processes, pair, tmp_path):
    scene = Scene(processes, pair, tmp_path / "run", "k")
    yield scene
    await scene.queue.aclose()


async def settled(scene, groups):
    """Wait until the server knows that so many groups were trained on."""
    async with asyncio.timeout(60):
        while (await scene.queue.status()).counts["trained"] < groups:
            await asyncio.sleep(0.02)


def warnings(scene, text):
    return [line for line in (scene.folder / "log").read_text().splitlines() if text in line]


async def test_a_replica_that_lagged_gives_a_trainer_nothing_twice(replicated, pair, undisturbed):
    scene = replicated
    pid = scene.train()
    await push(scene.queue, *range(6))
    await scene.at_version(3)
    await settled(scene, 6)
    await pair.fall_behind("k")
    # The replica has neither these six groups nor that they were trained on.
    await push(scene.queue, *range(6, 12))
    await scene.at_version(6)
    await pair.fail_over()
    await push(scene.queue, *range(12, UPDATES * BATCH))
    await scene.finished(pid)
    await assert_undisturbed(scene, undisturbed)
    assert sum(line["lost"] for line in scene.lines()) == 0
    (line,) = warnings(scene, "came back without what it last wrote")
    assert "fewer than the 12 groups" in line
    assert (await scene.queue.status()).counts["trained"] == UPDATES * BATCH


async def test_groups_that_a_replica_lacks_are_counted_when_a_run_goes_back(replicated, pair):
    scene = replicated
    pid = scene.train(save_every=4)
    await push(scene.queue, *range(10))
    await scene.at_version(5)
    await settled(scene, 10)
    await pair.fall_behind("k")
    await push(scene.queue, 10, 11)
    await scene.at_version(6)
    await settled(scene, 12)
    await pair.fail_over()
    async with asyncio.timeout(60):
        while not warnings(scene, "came back without"):
            await asyncio.sleep(0.02)
    await settled(scene, 12)
    # Its checkpoint is of update 4, after group 7; the replica has 8 and 9, and neither 10 nor 11.
    await scene.processes.end(pid, signal.SIGKILL)
    pid = scene.train()
    await push(scene.queue, *range(12, 18))
    await scene.finished(pid)
    assert scene.rows() == each_twice(*range(10), *range(12, 18))
    assert sum(line["lost"] for line in scene.lines()) == 2
    (line,) = warnings(scene, "and are gone")
    assert line.startswith("2 groups were trained on after the state that this run starts from")


async def fail_to_save(server, folder):
    """Let snapshots fail, after which Redis refuses to write."""
    # Its temporary file cannot be renamed to the name of a folder.
    (folder / "dump.rdb").mkdir()
    await server.config_set("save", "3600 1")
    await server.bgsave()
    async with asyncio.timeout(30):
        while (await server.info("persistence"))["rdb_last_bgsave_status"] != "err":
            await asyncio.sleep(0.05)


async def save_again(server, folder):
    (folder / "dump.rdb").rmdir()
    await server.bgsave()


async def be_full(server, folder):
    await server.config_set("maxmemory-policy", "noeviction")
    await server.config_set("maxmemory", 1)


async def have_room(server, folder):
    await server.config_set("maxmemory", 0)


REFUSALS = pytest.mark.parametrize(
    ("sign", "refuse", "mend"),
    [
        pytest.param("MISCONF", fail_to_save, save_again, id="a snapshot failed"),
        pytest.param("used memory > 'maxmemory'", be_full, have_room, id="its memory is full"),
    ],
)


@REFUSALS
async def test_a_redis_that_refuses_to_write_costs_time_alone(
    processes, tmp_path, undisturbed, caplog, sign, refuse, mend
):
    server = RedisServer(tmp_path)
    scene = Scene(processes, server, tmp_path / "run", "k")
    redis, far = Redis.from_url(server.url), RedisQueue(server.url, "k")
    try:
        pid = scene.train()
        await push(scene.queue, *range(7))
        await scene.at_version(3)
        await refuse(redis, tmp_path)
        pushing = asyncio.create_task(push(far, *range(7, UPDATES * BATCH)))
        # Longer than the trainer's heartbeat, and than the first pauses between two tries.
        await asyncio.sleep(2.5)
        assert not pushing.done()
        await mend(redis, tmp_path)
        await asyncio.wait_for(pushing, 60)
        await scene.finished(pid)
        await assert_undisturbed(scene, undisturbed)
        (line,) = [each for each in caplog.messages if sign in each]
        assert line.startswith("waiting for the queue, 600 s at most: Redis refused for now: ")
        # A trainer may remove groups where memory is full, and so need not wait.
        assert len(warnings(scene, sign)) <= 1
    finally:
        await redis.aclose()
        await far.aclose()
        await scene.queue.aclose()
        server.stop()
