"""Pushing params to servers that fail in every way and phase: never a mixture, always a name."""

import asyncio

import pytest
import torch
from fake_vllm.fleet import digest, running

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.errors import PublishError

# Long enough for a busy machine to do what works, short enough to wait for what hangs.
LIMIT_S = 10
ROUTES = {
    "pause": "/pause",
    "start": "/start_weight_update",
    "update": "/update_weights",
    "finish": "/finish_weight_update",
    "resume": "/resume",
}
BEFORE_THE_SWAP = ("pause", "start", "update")


class Client:
    """Versions that a publisher announces to its clients."""

    policy_version = None
    urls = None

    def use(self, urls):
        self.urls = list(urls)


def params(version, names=("embed.weight", "layers.0.w", "layers.1.w", "norm.weight")):
    """Four params of which every value says the version."""
    return {name: torch.full((3, 5), float(version)) for name in names}


def publisher(servers, **kwargs):
    urls = [server.url for server in servers]
    return FilesPublisher(urls, **{"limit_s": LIMIT_S, **kwargs})


async def published(target, version):
    await target.publish(iter(params(version).items()), version)


def served(server):
    return server.version, digest(server.params)


async def test_every_server_gets_every_version_whole():
    client = Client()
    async with running(2, params(0)) as servers:
        target = publisher(servers, clients=[client])
        for version in range(3):
            await published(target, version)
            for server in servers:
                assert served(server) == (str(version), digest(params(version)))
                assert not server.paused
    assert client.policy_version == 2
    assert client.urls == [server.url for server in servers]


async def test_the_phases_come_in_order():
    async with running(1, params(0)) as (server,):
        await published(publisher([server]), 1)

    assert server.calls == [
        "/server_info",
        "/start_weight_update",
        "/update_weights",
        "/pause",
        "/finish_weight_update",
        "/weight_info",
        "/resume",
    ]


async def test_servers_sample_until_all_params_have_arrived():
    paused = []
    async with running(2, params(0)) as servers:

        def read():
            for param in params(1).items():
                paused.append([server.paused for server in servers])
                yield param

        target = publisher(servers)
        await target.publish(read(), 1)
        for server in servers:
            at = server.calls.index("/pause")
            assert "/update_weights" not in server.calls[at:]
    assert paused == [[False, False]] * 4
    assert 0 < target.pause_s < LIMIT_S


async def test_requests_are_held_for_the_swap_and_see_one_version_each():
    seen = []
    async with running(1, params(0)) as (server,):
        target = publisher([server])
        await published(target, 0)

        async def ask():
            while server.version != "5":
                seen.append(await server.generate())
                await asyncio.sleep(0.001)

        asking = asyncio.create_task(ask())
        for version in range(1, 6):
            await published(target, version)
        await asking

    whole = {(str(version), digest(params(version))) for version in range(6)}
    assert set(seen) <= whole


@pytest.mark.parametrize("fault", ["500", "hang", "die"])
@pytest.mark.parametrize("phase", list(ROUTES))
async def test_a_fault_is_named_by_server_and_phase_and_no_server_has_a_mixture(phase, fault):
    async with running(2, params(0)) as servers:
        good, bad = servers
        target = publisher(servers, limit_s=2 if fault == "hang" else LIMIT_S)
        await published(target, 1)
        bad.faults[ROUTES[phase]] = fault

        with pytest.raises(PublishError, match=f"{bad.url}, .*failed in {phase}: "):
            await published(target, 2)

        one, two = (("1", digest(params(1))), ("2", digest(params(2))))
        assert served(bad) in (one, two)
        assert served(good) == (one if phase in BEFORE_THE_SWAP else two)
        assert not good.open
        if phase != "resume":
            assert not good.paused


@pytest.mark.parametrize("phase", BEFORE_THE_SWAP)
async def test_training_may_go_on_without_the_server_that_failed_until_it_is_back(phase):
    client = Client()
    async with running(2, params(0)) as servers:
        good, bad = servers
        target = publisher(servers, on_failure="skip", clients=[client])
        await published(target, 1)
        bad.faults[ROUTES[phase]] = "500"
        await published(target, 2)

        assert served(good) == ("2", digest(params(2)))
        assert served(bad) == ("1", digest(params(1)))
        assert client.urls == [good.url]

        bad.faults.clear()
        await published(target, 3)
        assert served(bad) == served(good) == ("3", digest(params(3)))
        assert client.urls == [good.url, bad.url]
        assert not bad.paused


async def test_when_no_server_is_left_training_cannot_go_on():
    async with running(2, params(0)) as servers:
        target = publisher(servers, on_failure="skip")
        for server in servers:
            server.faults["/start_weight_update"] = "500"
        with pytest.raises(PublishError) as error:
            await published(target, 1)
    assert all(server.url in str(error.value) for server in servers)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers.0.w": torch.zeros(2, 5)}, r"no params of layers.0.w \[2, 5\]"),
        ({"layers.0.w": torch.zeros(3, 5).int()}, r"no params of layers.0.w \[3, 5\] int32"),
        ({"layers.7.w": torch.zeros(3, 5)}, r"no params of layers.7.w"),
        ({"norm.weight": None}, "lacks norm.weight"),
    ],
)
async def test_params_that_do_not_fit_change_nothing(changes, reason):
    async with running(1, params(0)) as (server,):
        target = publisher([server])
        sent = {n: p for n, p in {**params(1), **changes}.items() if p is not None}
        with pytest.raises(PublishError, match=f"failed in update: .*{reason}"):
            await target.publish(iter(sent.items()), 1)
        assert served(server) == ("default", digest(params(0)))
        assert not server.paused
        await published(target, 2)
        assert served(server) == ("2", digest(params(2)))


@pytest.mark.parametrize(
    ("faults", "answers", "said"),
    [
        ({"/finish_weight_update": "500"}, {}, "out of memory"),
        ({}, {"/weight_info": {"weight_version": "7"}}, "version '7' after version 1"),
    ],
)
async def test_a_server_whose_params_are_in_doubt_stays_silent(faults, answers, said):
    async with running(1, params(0)) as (server,):
        server.faults |= faults
        server.answers |= answers
        with pytest.raises(PublishError, match=f"failed in finish: .*{said}"):
            await published(publisher([server]), 1)
        assert server.paused


async def test_two_publishers_do_not_mix_their_params():
    async with running(1, params(0)) as (server,):
        first, second = (publisher([server]) for _ in range(2))
        await published(first, 1)
        server.faults["/finish_weight_update"] = 1.0
        publishing = asyncio.create_task(published(first, 2))
        while not server.open:
            await asyncio.sleep(0.01)
        with pytest.raises(PublishError, match="another publisher uses the server"):
            await published(second, 7)
        await publishing
        assert served(server) == ("2", digest(params(2)))


async def test_the_session_of_a_publisher_that_died_can_be_taken_over():
    async with running(1, params(0)) as (server,):
        server.open = True
        target = publisher([server])
        with pytest.raises(PublishError, match="take_over"):
            await published(target, 1)
        await target.take_over()
        await published(target, 2)
        assert served(server) == ("2", digest(params(2)))


async def test_what_feeds_the_params_is_read_to_its_end_when_publishing_fails():
    left = iter(params(1).items())
    async with running(1, params(0)) as (server,):
        server.faults["/pause"] = "500"
        with pytest.raises(PublishError):
            await publisher([server]).publish(left, 1)
    assert list(left) == []


async def test_a_server_without_the_routes_is_told_how_to_be_started():
    async with running(1, params(0)) as (server,):
        target = FilesPublisher(f"{server.url}/other", limit_s=LIMIT_S)
        with pytest.raises(PublishError, match=r"failed in connect: .*`ludic serve`"):
            await published(target, 1)


async def test_every_request_has_the_servers_key(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    async with running(1, params(0)) as (server,):
        await published(publisher([server]), 1)
    assert server.keys == {"Bearer secret"}


@pytest.mark.parametrize("urls", [[], ["http://a", "http://a/v1"]])
def test_the_same_server_twice_is_refused(urls):
    with pytest.raises(ConfigError, match="one server each"):
        FilesPublisher(urls)
