"""Faults of a Redis server: lost data, full memory, trimmed streams and clocks that jump."""

import asyncio
import random
from contextlib import suppress

import pytest
from queue_calls import ACTOR, FRESH, read, redis_key, take_over
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis_server import RedisServer, needs_redis

from ludic_train.cluster.queues import redis_queue
from ludic_train.cluster.queues.base import ActorReport, Progress, Trained
from ludic_train.errors import QueueError, QueueReset, QueueUnavailable

pytestmark = needs_redis


@pytest.fixture
async def own_server(tmp_path):
    server = RedisServer(tmp_path)
    yield server
    server.stop()


async def test_a_server_that_lost_everything_is_told_from_another_trainer(made, own_server):
    queue = made(own_server.url)
    await take_over(queue)
    await queue.push("a", b"a")
    (a,) = await queue.read(1)
    own_server.kill()
    with pytest.raises(QueueUnavailable):
        await queue.read(1)
    own_server.start()
    with pytest.raises(QueueReset):
        await queue.read(1)
    with pytest.raises(QueueReset):
        await queue.settle(Progress(trainer=FRESH, trained=[Trained(id=a.id, key="a", lag=0)]))
    await take_over(queue)
    await queue.push("b", b"b")
    assert [entry.key for entry in await queue.read(1)] == ["b"]


async def test_a_read_that_meets_a_takeover_leaves_the_new_boundary_alone(
    made, redis_server, monkeypatch, key
):
    queue = made()
    await take_over(queue)
    await queue.push("a", b"")
    xread, server = Redis.xread, Redis.from_url(redis_server.url)

    async def overtaken(*arguments, **options):
        found = await xread(*arguments, **options)
        await take_over(queue)
        return found

    monkeypatch.setattr(Redis, "xread", overtaken)
    assert await queue.read(1) == []
    monkeypatch.undo()
    (group,) = await server.xinfo_groups(redis_key(key, "groups"))
    assert (group["last-delivered-id"], group["pending"]) == (b"0-0", 0)
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    await server.aclose()


async def test_a_late_response_of_a_server_that_forgot_its_calls_is_no_reset(
    made, own_server, monkeypatch
):
    queue, server = made(own_server.url), Redis.from_url(own_server.url)
    await take_over(queue)
    await queue.beat()
    run = AsyncScript.__call__

    async def late(*arguments, **options):
        found = await run(*arguments, **options)
        monkeypatch.undo()
        await server.flushall()
        await take_over(queue)
        return found

    monkeypatch.setattr(AsyncScript, "__call__", late)
    await queue.beat()
    await queue.beat()
    await server.aclose()


@pytest.mark.parametrize("how", ["delete", "flushall", "rename"])
async def test_a_stream_that_somebody_removes_while_it_is_read_is_taken_over_again(
    made, own_server, how, key
):
    queue, server = made(own_server.url), Redis.from_url(own_server.url)
    await take_over(queue)
    waiting = asyncio.ensure_future(queue.read(1))
    await asyncio.sleep(0.3)
    stream = redis_key(key, "groups")
    await getattr(server, how)(*{"delete": [stream], "flushall": [], "rename": [stream, "x"]}[how])
    # Redis 6.2 goes on waiting; Redis 7 and Valkey say what happened, in words of their own.
    with suppress(QueueUnavailable, QueueReset):
        assert await waiting == []
    assert (await queue.status()).pending == 0
    with pytest.raises(QueueReset):
        await queue.read(1)
    await take_over(queue)
    await queue.push("a", b"")
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    await server.aclose()


async def test_a_server_that_forgot_the_queue_gives_no_id_again(made, own_server, key):
    # What was read, and is not settled, is known by its id: another must not have the same.
    queue, server = made(own_server.url), Redis.from_url(own_server.url)
    stream = redis_key(key, "groups")
    for sequence in (9, 10):
        await server.xadd(stream, {"k": "future", "d": b""}, id=f"4102444800000-{sequence}")
    await take_over(queue)
    nine, ten = await read(queue, 2)
    await server.flushall()
    await take_over(queue, kept=nine.id, total=1)
    await queue.push("now", b"")
    assert (await queue.read(1))[0].id == "4102444800000-11"
    assert ten.id == "4102444800000-10"
    await server.aclose()


async def test_a_server_whose_memory_is_full_makes_actors_wait_and_lets_the_trainer_go_on(
    made, own_server
):
    queue, server = made(own_server.url), Redis.from_url(own_server.url)
    await queue.push("a", b"a")
    await queue.push("b", b"b")
    await server.config_set("maxmemory", 1)
    with pytest.raises(QueueUnavailable, match="maxmemory"):
        await queue.push("c", b"c")
    with pytest.raises(QueueUnavailable, match="maxmemory"):
        await queue.admit(ACTOR, 1)
    await take_over(queue)
    a, b = await read(queue, 2)
    await queue.attempt([a])
    done = [Trained(id=a.id, key="a", lag=0)]
    await queue.settle(Progress(trainer=FRESH, trained=done, total=1, release=[a.id]))
    await queue.discard(b, "dead", "no group")
    status = await queue.status()
    assert (status.queued, status.counts) == (0, {"trained": 1, "dead": 1})
    await server.aclose()


async def test_a_server_that_would_remove_groups_to_make_room_is_refused(made, own_server):
    queue, server = made(own_server.url), Redis.from_url(own_server.url)
    await server.config_set("maxmemory", 10**9)
    await server.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(QueueError, match=r"allkeys-lru: .*set maxmemory-policy noeviction"):
        await take_over(queue)
    await server.config_set("maxmemory-policy", "volatile-lru")
    await take_over(queue)
    await server.aclose()


async def test_entries_whose_delivery_was_lost_are_read_after_all(made, own_server, monkeypatch):
    monkeypatch.setattr(redis_queue, "TIMEOUT_S", 1.5)
    queue = made(own_server.url)
    await take_over(queue)
    for key in "abc":
        await queue.push(key, b"")
    assert [entry.key for entry in await queue.read(1)] == ["a"]
    own_server.pause()
    with pytest.raises(QueueUnavailable):
        await read(queue, 5)
    own_server.go_on()
    # The server has answered by now, to a connection that nobody listens to.
    await queue.push("d", b"")
    assert [entry.key for entry in await read(queue, 3)] == ["b", "c", "d"]


async def test_an_actor_that_reports_no_more_holds_no_room(made, redis_server, monkeypatch, key):
    monkeypatch.setattr(redis_queue, "ALIVE_MS", 30)
    queue = made()
    await take_over(queue)
    assert (await queue.admit(ActorReport(name="dies", running=0, version=0), 8)).granted == 8
    while (await queue.status()).actors:
        pass
    assert (await queue.admit(ActorReport(name="lives", running=0, version=0), 8)).granted == 8
    server = Redis.from_url(redis_server.url)
    for part in ("running", "actors"):
        assert await server.hkeys(redis_key(key, part)) == [b"lives"]
    await queue.leave("lives")
    for part in ("running", "actors"):
        assert await server.hkeys(redis_key(key, part)) == []
    await server.aclose()


async def test_pushes_that_are_cancelled_at_any_moment_leave_the_queue_usable(made):
    # An actor cancels groups that became too old, and shares one connection among all.
    queue, dice = made(), random.Random(0)
    for number in range(80):
        data = str(number).encode() * 100_000
        pushing = asyncio.ensure_future(queue.push(str(number), data))
        await asyncio.sleep(dice.random() * 0.004)
        pushing.cancel()
        with suppress(asyncio.CancelledError):
            await pushing
        assert (await queue.status()).trainer is None
    await take_over(queue)
    await queue.push("last", b"last")
    found = []
    while not found or found[-1].key != "last":
        found += await queue.read(50)
    assert all(entry.data == entry.key.encode() * 100_000 for entry in found[:-1])
    assert len({entry.key for entry in found}) == len(found)


async def test_a_clock_that_jumps_forward_is_forgiven_at_the_next_report(made, redis_server, key):
    # Every lifetime ends at once: that is all that a server's clock decides.
    queue, server = made(), Redis.from_url(redis_server.url)
    await take_over(queue)
    one, two = (ActorReport(name=name, running=0, version=0) for name in ("one", "two"))
    assert (await queue.admit(one, 8)).granted == 8
    await server.zadd(redis_key(key, "leases"), {"one": 1})
    assert (await queue.admit(two, 0)).granted == 0
    assert (await queue.admit(ActorReport(name="one", running=8, version=0), 1)).granted == 0
    assert (await queue.admit(two, 1)).granted == 0
    await server.aclose()


async def test_a_clock_that_jumps_back_keeps_the_order_and_loses_nothing(made, redis_server, key):
    # The stream has seen the year 2100; what is pushed now must come after that all the same.
    queue, server = made(), Redis.from_url(redis_server.url)
    stream = redis_key(key, "groups")
    await server.xadd(stream, {"k": "future", "d": b""}, id="4102444800000-0")
    await queue.push("now", b"")
    await take_over(queue)
    future, now = await read(queue, 2)
    assert (future.key, now.key) == ("future", "now")
    # A server that forgot the stream begins anew, and still after what a checkpoint covers.
    await server.delete(stream)
    await take_over(queue, kept=now.id, total=2)
    await queue.push("later", b"")
    assert [entry.key for entry in await queue.read(1)] == ["later"]
    await server.aclose()


async def test_what_a_stranger_added_arrives_as_an_entry_that_no_group_can_be_read_from(
    made, redis_server, key
):
    queue, server = made(), Redis.from_url(redis_server.url)
    await server.xadd(redis_key(key, "groups"), {"whatever": b"\xff"})
    await server.xadd(redis_key(key, "groups"), {"k": b"\xff\xfe", "d": b"x"})
    await take_over(queue)
    first, second = await read(queue, 2)
    assert (first.key, first.data) == ("", b"")
    assert second.data == b"x"
    await queue.discard(first, "dead", "truncated")
    assert [letter.reason for letter in await queue.dead_letters()] == ["truncated"]
    await server.aclose()


async def test_the_places_of_those_that_left_or_died_wake_those_that_wait(made, redis_server, key):
    queue = made()
    await take_over(queue)
    everything = [ActorReport(name=f"a{i}", running=0, version=0) for i in range(40)]
    assert (await queue.admit(everything[0], 8)).granted == 8
    for report in everything[1:]:
        assert (await queue.admit(report, 1)).granted == 0
    assert not await asyncio.wait_for(made().woken("a1"), 20)
    await queue.leave("a0")
    # In the order in which they began to wait; each of the eight finds a place.
    for report in everything[1:9]:
        assert await queue.woken(report.name)
        assert (await queue.admit(report, 1)).granted == 1
    # One that dies, without a word: the next report finds it.
    for report in everything[2:9]:
        await queue.admit(ActorReport(name=report.name, running=1, version=0), 0)
    server = Redis.from_url(redis_server.url)
    await server.zadd(redis_key(key, "leases"), {"a1": 1})
    assert (await queue.admit(everything[9], 1)).granted == 1
    assert int(await server.hget(redis_key(key, "state"), "playing")) == 8
    await server.aclose()


async def test_a_rejected_actor_wakes_no_other_one(made, redis_server, key):
    # Else those that are too far behind would wake each other for ever.
    queue, server = made(), Redis.from_url(redis_server.url)
    await take_over(queue)
    old = [ActorReport(name=name, running=0, version=-9) for name in ("one", "two")]
    for report in old:
        assert (await queue.admit(report, 1)).granted == 0
    for report in old:
        assert (await queue.admit(report, 1)).granted == 0
        assert await server.keys(redis_key(key, "wake:*")) == []
    await server.aclose()
