"""Servers that start late, die, lose their params, or serve somebody else."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest
import torch
from fake_vllm.fleet import FakeVLLM, running
from redis_server import free_port
from trajectories import call, rollout

from ludic_gym.types import Task
from ludic_train.algorithms.presets import sft
from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.servers import health
from ludic_train.cluster.servers.health import PatientPublisher, WatchedSource
from ludic_train.errors import ParamsLost, PublishError
from ludic_train.rows import trajectory_from
from ludic_train.runs.signals import StopRequested, StopSign
from ludic_train.sources.base import Pace

PACE = Pace(version=0, updates_per_batch=1, oldest_lag=0, max_lag=None)
START = {"weight": torch.zeros(3)}


def params(value):
    return [("weight", torch.full((3,), float(value)))]


def publisher_to(servers, *, stop=None, **options):
    def to(urls):
        return FilesPublisher(urls, on_failure="skip")

    urls = [server.url for server in servers]
    return PatientPublisher(to, urls, stop or StopSign(), **options)


@asynccontextmanager
async def published(count, **options):
    """Servers that have version 4, and the publisher."""
    async with running(count, START) as servers:
        publisher = publisher_to(servers, **options)
        await publisher.publish(params(4), 4)
        yield servers, publisher


async def begun_anew(server):
    """Another process at the server's address, with the params of the start."""
    await server.stop()
    fresh = FakeVLLM(START)
    fresh.url = server.url
    await fresh.start()
    return fresh


async def test_a_server_that_starts_late_is_waited_for():
    server = FakeVLLM(START)
    server.url = f"http://127.0.0.1:{free_port()}"
    publishing = asyncio.create_task(publisher_to([server]).publish(params(0), 0))
    await asyncio.sleep(0.2)
    await server.start()
    await publishing
    assert server.version == "0"
    await server.stop()


async def test_a_server_that_never_answers_ends_the_wait_with_a_remedy():
    server = FakeVLLM(START)
    server.url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(PublishError, match=rf"no answer from {server.url}.*ludic serve.*--resume"):
        await publisher_to([server], patience_s=0.1).publish(params(0), 0)


async def test_a_server_that_was_started_again_is_met_anew_at_the_next_publication(caplog):
    async with published(2) as ((one, other), publisher):
        other = await begun_anew(other)
        await publisher.publish(params(8), 8)
        assert caplog.messages == []
        assert [server.version for server in (one, other)] == ["8", "8"]
        assert torch.equal(one.params["weight"], other.params["weight"])
        await other.stop()


async def test_a_server_that_dies_while_it_is_published_to_is_left_out_until_it_is_back(caplog):
    async with published(2) as ((one, other), publisher):
        other.faults["/update_weights"] = "die"
        await publisher.publish(params(8), 8)
        assert one.version == "8"
        assert f"no requests until it takes the params: {other.url}" in caplog.text
        other = await begun_anew(other)
        await publisher.publish(params(9), 9)
        assert [server.version for server in (one, other)] == ["9", "9"]
        await other.stop()


async def test_the_only_server_that_dies_while_it_is_published_to_gets_all_when_it_is_back():
    async with published(1) as ((server,), publisher):
        server.faults["/update_weights"] = "die"
        publishing = asyncio.create_task(publisher.publish(params(8), 8))
        while server.runner is not None:
            await asyncio.sleep(0.01)
        server = await begun_anew(server)
        await publishing
        assert server.version == "8"
        await server.stop()


async def test_a_silent_server_holds_up_no_publication(caplog, monkeypatch):
    monkeypatch.setattr(health, "ANSWER_S", 0.3)
    monkeypatch.setattr(health, "SILENT_ANSWER_S", 0.1)
    async with published(2) as ((one, other), publisher):
        other.faults["/weight_info"] = "hang"
        for version in (8, 9):
            await publisher.publish(params(version), version)
        assert (one.version, other.version) == ("9", "4")
        assert caplog.text.count(f"no answer from {other.url}; 1 servers do answer") == 1
        other.faults.clear()
        await publisher.publish(params(10), 10)
        assert (one.version, other.version) == ("10", "10")


async def test_a_server_that_joins_is_found_by_a_look_and_gets_the_params(caplog):
    async with running(2, START) as (one, other):
        there = [one.url]

        async def joined():
            return there

        publisher = publisher_to([], joined=joined)
        await publisher.publish(params(4), 4)
        await publisher.look()
        # One of another run before: its number says nothing about this one.
        there.append(other.url)
        other.version = "17"
        with pytest.raises(ParamsLost, match=f"{other.url} lost version 4, or has just joined"):
            await publisher.look()
        await publisher.publish(params(4), 4)
        await publisher.look()
        assert (other.version, other.params["weight"][0]) == ("4", 4)
        assert f"{other.url} has joined; 2 servers have the params" in caplog.text
        there.remove(one.url)
        await publisher.publish(params(5), 5)
        assert (one.version, other.version) == ("4", "5")


async def test_a_server_of_another_model_costs_the_others_nothing(caplog):
    async with published(2) as ((one, other), publisher):
        other.params = {"other": torch.zeros(1)}
        for version in (8, 9):
            await publisher.publish(params(version), version)
            assert (one.version, other.version) == (str(version), "4")
        assert caplog.text.count("no requests until it takes the params") == 1
        # Nor does it keep a look from the others.
        await publisher.look()


async def test_a_server_that_somebody_else_publishes_to_is_refused():
    async with published(1) as ((server,), publisher):
        server.version = "17"
        for attempt in (publisher.look(), publisher.publish(params(8), 8)):
            with pytest.raises(PublishError, match="has version 17, but 4 was published"):
                await attempt


async def test_a_look_finds_a_server_that_lost_its_params_and_none_where_all_is_well():
    async with published(2) as ((_, other), publisher):
        await publisher.look()
        other.version = "default"
        with pytest.raises(ParamsLost, match=rf"^{other.url} lost version 4"):
            await publisher.look()


async def test_a_look_finds_a_server_that_is_silent_for_too_long():
    async with published(1, patience_s=0.2) as ((server,), publisher):
        await server.stop()
        await publisher.look()
        await asyncio.sleep(0.3)
        with pytest.raises(PublishError, match="no answer from"):
            await publisher.look()


def group(number):
    key = f"g{number}"
    one = trajectory_from(rollout((call([1], [2]),), task=Task(env_id="x", group=key)))
    return group_to_bytes(RolloutGroup(key=key, trajectories=(one, one)))


async def test_a_wait_for_a_server_ends_when_somebody_asks_to_stop():
    asked = []
    stop = StopSign(lambda: bool(asked))
    async with published(1, stop=stop) as ((server,), publisher):
        await server.stop()
        publishing = asyncio.create_task(publisher.publish(params(8), 8))
        await asyncio.sleep(0.2)
        asked.append(True)
        with pytest.raises(StopRequested):
            async with asyncio.timeout(60):
                await publishing


async def test_a_wait_for_a_batch_ends_when_somebody_asks_to_stop():
    asked = []
    stop = StopSign(lambda: bool(asked))
    source = WatchedSource(SQLiteQueue(), stop, groups_per_batch=3, group_size=2)
    await source.begin(PACE)
    waiting = asyncio.create_task(source.next_batch(sft()))
    await asyncio.sleep(0.2)
    asked.append(True)
    with pytest.raises(StopRequested):
        async with asyncio.timeout(60):
            await waiting
    await source.aclose()


async def test_a_wait_that_a_look_ends_loses_no_group():
    looks, queue = count(1), SQLiteQueue()

    async def losing():
        if next(looks) == 2:
            raise ParamsLost("gone")

    source = WatchedSource(queue, StopSign(), losing, groups_per_batch=3, group_size=2, quiet_s=0.2)
    await source.begin(PACE)
    await queue.push("g0", group(0))
    with pytest.raises(ParamsLost):
        await source.next_batch(sft())
    for number in (1, 2):
        await queue.push(f"g{number}", group(number))
    batch = await source.next_batch(sft())
    assert [item.group for item in batch.items] == ["g0", "g0", "g1", "g1", "g2", "g2"]
    await source.aclose()
