"""Publications that run while training goes on."""

import asyncio
import threading

import pytest
import torch
from fake_vllm.fleet import running
from two_ranks.learning import random_rows, settings, tiny_model

from ludic_train.algorithms.presets import sft
from ludic_train.cluster.background_publisher import BackgroundPublisher
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.errors import PublishError
from ludic_train.trainer.trainer import Trainer

START = {"weight": torch.zeros(3)}


class Engine:
    """Takes a publication once `open` is set; the version in `refused` never."""

    def __init__(self):
        self.open, self.refused = threading.Event(), None
        self.taken, self.begun, self.threads, self.places, self.looks = {}, [], set(), [], []
        self.open.set()

    async def publish(self, params, version):
        self.begun.append(version)
        self.threads.add(threading.get_ident())
        while not self.open.is_set():
            await asyncio.sleep(0.001)
        if version == self.refused:
            raise PublishError(f"version {version} is refused")
        # As servers do, which get the bytes at the end.
        params = dict(params)
        self.places.append({name: tensor.data_ptr() for name, tensor in params.items()})
        self.taken[version] = {name: tensor.clone() for name, tensor in params.items()}

    async def look(self):
        self.looks.append(threading.get_ident())


def named(value, name="weight"):
    return [(name, torch.full((3,), float(value)))]


@pytest.fixture
async def engine():
    return Engine()


@pytest.fixture
async def publisher(engine):
    made = BackgroundPublisher(engine, look=engine.look)
    yield made
    engine.open.set()
    await made.aclose()


def params_of(model):
    return {name: param.detach().clone() for name, param in model.named_parameters()}


async def test_an_update_changes_nothing_of_a_publication_that_is_running(engine, publisher):
    trainer = Trainer(tiny_model(), sft(), None, publisher, settings())
    await trainer.publish()
    engine.open.clear()
    expected = []
    for _ in range(2):
        trainer.update(random_rows(8))
        expected.append(params_of(trainer.model))
        if len(expected) == 1:
            await trainer.publish()
    assert list(engine.taken) == [0]
    engine.open.set()
    await trainer.publish()
    await publisher.finish()
    assert list(engine.taken) == [0, 1, 2]
    for version, params in enumerate(expected, start=1):
        for name, value in params.items():
            assert torch.equal(engine.taken[version][name], value)
    assert engine.places[0] == engine.places[1] == engine.places[2]
    assert engine.threads.isdisjoint({threading.get_ident()})


@pytest.mark.parametrize("versions", [[0], [4, 5, 5], [4, 5, 3]])
async def test_the_first_publication_and_one_that_is_no_newer_are_awaited(
    engine, publisher, versions
):
    for version in versions[:-1]:
        await publisher.publish(named(version), version)
    await publisher.finish()
    engine.open.clear()
    last = asyncio.create_task(publisher.publish(named(9), versions[-1]))
    await asyncio.sleep(0.05)
    assert not last.done()
    engine.open.set()
    await last
    assert engine.taken[versions[-1]]["weight"][0] == 9


async def test_the_next_publication_waits_for_the_one_before(engine, publisher):
    await publisher.publish(named(0), 0)
    engine.open.clear()
    await publisher.publish(named(1), 1)
    following = asyncio.create_task(publisher.publish(named(2), 2))
    await asyncio.sleep(0.05)
    assert (following.done(), engine.begun) == (False, [0, 1])
    engine.open.set()
    await following
    await publisher.finish()
    assert {v: float(taken["weight"][0]) for v, taken in engine.taken.items()} == {0: 0, 1: 1, 2: 2}


NEXT = {
    "publish": lambda publisher: publisher.publish(named(2), 2),
    "finish": lambda publisher: publisher.finish(),
    "look": lambda publisher: publisher.look(),
}


async def ended(engine, publisher):
    """Publications 0 and 1, the second of which has failed."""
    engine.refused = 1
    await publisher.publish(named(0), 0)
    await publisher.publish(named(1), 1)
    while not publisher._running.done():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("call", NEXT)
async def test_what_fails_is_raised_once_by_the_next_call(engine, publisher, call):
    await ended(engine, publisher)
    with pytest.raises(PublishError, match="version 1 is refused"):
        await NEXT[call](publisher)
    await publisher.publish(named(3), 3)
    await publisher.finish()
    assert list(engine.taken) == [0, 3]


async def test_what_fails_is_logged_at_the_end_if_no_call_raised_it(engine, publisher, caplog):
    await ended(engine, publisher)
    await publisher.aclose()
    assert "params were not published" in caplog.text
    assert "version 1 is refused" in caplog.text
    await publisher.aclose()
    assert len(caplog.records) == 1


async def test_servers_are_looked_at_in_the_thread_and_between_publications(engine, publisher):
    await publisher.publish(named(0), 0)
    await publisher.look()
    engine.open.clear()
    await publisher.publish(named(1), 1)
    await publisher.look()
    assert engine.looks == [*engine.threads]


async def test_frozen_params_are_copied_once(engine):
    publisher = BackgroundPublisher(engine, frozen=["base"])
    for version in range(2):
        await publisher.publish([*named(version, "base"), *named(version, "adapter")], version)
    await publisher.aclose()
    await publisher.publish([*named(5, "base"), *named(5, "adapter")], 5)
    await publisher.aclose()
    firsts = {v: [float(t[0]) for t in taken.values()] for v, taken in engine.taken.items()}
    assert {0: [0, 0], 5: [0, 5]}.items() <= firsts.items()


@pytest.mark.parametrize(
    ("route", "fault"), [("/start_weight_update", "mute"), ("/update_weights", "hang")]
)
async def test_a_closed_one_leaves_servers_with_the_version_before(route, fault):
    async with running(2, START) as servers:
        urls = [server.url for server in servers]
        publisher = BackgroundPublisher(FilesPublisher(urls))
        await publisher.publish(named(4), 4)
        while servers[0].version != "4" or servers[0].paused:
            await asyncio.sleep(0.01)
        earlier = len(servers[1].calls)
        servers[1].faults[route] = fault
        await publisher.publish(named(5), 5)
        while route not in servers[1].calls[earlier:]:
            await asyncio.sleep(0.01)
        servers[1].faults.clear()
        await publisher.aclose()
        for server in servers:
            assert (server.version, server.paused, server.open) == ("4", False, False)
            assert server.params["weight"][0] == 4
