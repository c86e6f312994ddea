"""After any kill, pause, repeat or poison, each group has been trained on once, or is named.

Every run here learns from the same groups. Its params at the end must be, to the bit, those of a
run to which nothing happened.
"""

import asyncio
import os
import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest
from faults.scene import BATCH, UPDATES, assert_undisturbed, group, push
from queue_calls import redis_key
from redis.asyncio import Redis
from redis_server import needs_redis

from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.metrics import Stat

pytestmark = needs_redis


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("read:4", id="between read and ack"),
        pytest.param("acked:5", id="between ack and checkpoint"),
        pytest.param("saved:4", id="between checkpoint and release"),
        pytest.param("acked:1", id="before the first checkpoint"),
    ],
)
async def test_a_trainer_that_is_killed_goes_on_as_if_nothing_had_been(scene, undisturbed, point):
    await push(scene.queue, *range(UPDATES * BATCH))
    killed = scene.train(point=point)
    assert await scene.processes.end(killed) == -signal.SIGKILL
    await scene.finished(scene.train())
    await assert_undisturbed(scene, undisturbed)
    assert (await scene.queue.status()).counts == {"trained": UPDATES * BATCH}


@pytest.mark.parametrize(
    ("fault", "mend", "away_s", "options"),
    [
        pytest.param("kill", "start", 0.5, {}, id="killed"),
        pytest.param("pause", "go_on", 2, {"timeout_s": 0.8}, id="silent beyond any timeout"),
    ],
)
async def test_a_redis_that_is_away_costs_time_alone(
    own_scene, undisturbed, fault, mend, away_s, options
):
    scene = own_scene
    pid = scene.train(**options)
    await push(scene.queue, *range(7))
    await scene.at_version(2)
    getattr(scene.server, fault)()
    pushing = asyncio.create_task(push(scene.queue, *range(7, UPDATES * BATCH)))
    await asyncio.sleep(away_s)
    getattr(scene.server, mend)()
    await asyncio.wait_for(pushing, 120)
    await scene.finished(pid)
    await assert_undisturbed(scene, undisturbed)


async def test_groups_that_arrive_twice_are_trained_on_once(scene, undisturbed):
    for number in range(UPDATES * BATCH):
        await push(scene.queue, number, number, max(0, number - 3))
    await scene.finished(scene.train())
    await assert_undisturbed(scene, undisturbed)
    status = await scene.queue.status()
    assert status.counts["trained"] == UPDATES * BATCH
    assert status.counts["duplicate"] + status.queued == 2 * UPDATES * BATCH


async def test_a_full_queue_holds_actors_back_and_loses_nothing(scene, undisturbed):
    narrow = RedisQueue(scene.server.url, scene.key, max_queued=BATCH)
    pid = scene.train()
    await asyncio.wait_for(push(narrow, *range(UPDATES * BATCH)), 120)
    await scene.finished(pid)
    await narrow.aclose()
    await assert_undisturbed(scene, undisturbed)


async def test_a_clock_that_jumps_changes_nothing(scene, undisturbed):
    server = Redis.from_url(scene.server.url)
    await push(scene.queue, *range(5))
    # A group from the year 2100, and after it the clock is right again; then all actors expire.
    data = group_to_bytes(group(5))
    entry = {"k": "g5", "d": data}
    await server.xadd(redis_key(scene.key, "groups"), entry, id="4102444800000-0")
    pid = scene.train()
    await scene.at_version(2)
    await server.delete(redis_key(scene.key, "leases"))
    await push(scene.queue, *range(6, UPDATES * BATCH))
    await scene.finished(pid)
    await assert_undisturbed(scene, undisturbed)
    await server.aclose()


def strange(key, *, metrics=None, **changes):
    """A message whose rows have values that no honest actor sends."""
    made = [
        replace(
            each, group=key, rows=tuple(replace(row, group=key, **changes) for row in each.rows)
        )
        for each in group(99).trajectories
    ]
    return group_to_bytes(RolloutGroup(key=key, trajectories=tuple(made), metrics=metrics or {}))


async def test_poison_of_every_kind_is_named_and_changes_nothing(scene, undisturbed, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "the-pickle-was-run"),))

    server = Redis.from_url(scene.server.url)
    good = group_to_bytes(group(99))
    poisons = {
        "pickle": pickle.dumps(Bomb()),
        "truncated": good[:-7],
        "schema": good[:4] + b"\x02" + good[5:],
        "huge": bytes(2**26 + 2**10),
        "empty": b"",
    }
    strangers = {
        "hot": strange("hot", temperature=1e9),
        "sure": strange("sure", behavior_logprobs=np.full(6, -1e9, np.float32)),
        "uncounted": strange("uncounted", metrics={"reward": Stat(float("nan"), 1)}),
    }
    for name, poison in strangers.items():
        await scene.queue.push(name, poison)
    for number, (name, poison) in enumerate(poisons.items()):
        await push(scene.queue, 3 * number, 3 * number + 1)
        await scene.queue.push(name, poison)
        await push(scene.queue, 3 * number + 2)
    await server.xadd(redis_key(scene.key, "groups"), {"no": "fields"})
    await push(scene.queue, 15)
    await scene.finished(scene.train())
    await assert_undisturbed(scene, undisturbed)
    letters = await scene.queue.dead_letters()
    assert [letter.key for letter in letters] == [*strangers, *poisons, ""]
    assert all(letter.reason for letter in letters)
    found = [letter.reason for letter in letters]
    assert "temperature=1e+09 is not within" in found[0]
    assert "log-probs from -1e+09 to 0 are not within" in found[1]
    assert "'reward' is Stat(sum=nan, count=1.0), which is not finite" in found[2]
    assert not (tmp_path / "the-pickle-was-run").exists()
    await server.aclose()


async def test_an_actor_that_is_killed_in_the_middle_of_its_groups_leaves_no_half_of_one(scene):
    pid = scene.train(max_lag=2)
    killed = scene.act(name="killed", delay_s=0.4)
    async with asyncio.timeout(120):
        while not any(a.running for a in (await scene.queue.status()).actors):
            await asyncio.sleep(0.02)
    await scene.processes.end(killed, signal.SIGKILL)
    before = {key for line in scene.lines() for key in line["rows"]}
    living = scene.act(name="living", first=1000)
    await scene.finished(pid)
    assert await scene.processes.end(living, signal.SIGTERM) == 0
    rows = scene.rows()
    assert len(rows) == 2 * UPDATES * BATCH
    assert all(rows.count(name) == 2 for name in rows)
    assert set(rows) - before
    assert (await scene.queue.status()).counts["trained"] == UPDATES * BATCH


async def test_fast_and_slow_actors_together_never_exceed_the_lag(scene):
    pid = scene.train(max_lag=3, updates=40, save_every=1000)
    actors = [
        scene.act(name=f"actor{i}", first=10_000 * i, delay_s=delay)
        for i, delay in enumerate((0.0, 0.01, 0.3))
    ]
    await scene.finished(pid)
    for each in actors:
        assert await scene.processes.end(each, signal.SIGTERM) == 0
    status = await scene.queue.status()
    assert sum(status.lags.values()) == 40 * BATCH
    assert max(status.lags) <= 3
    assert max(line["lag"] for line in scene.lines()) == max(status.lags)
