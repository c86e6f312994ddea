"""Versions that actors know of their inference servers."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fake_vllm.fleet import running

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ClientError
from ludic_train.cluster import server_versions
from ludic_train.cluster.server_versions import ServedVersions


def render(messages, reply_comes):
    return [1, 2, 3]


@asynccontextmanager
async def watched(count, every_s=0.0):
    """Servers, a client of theirs, and their versions."""
    async with running(count, {}) as servers:
        urls = [server.url for server in servers]
        client = VLLMTokenClient(urls, render)
        served = ServedVersions([f"{url}/v1" for url in urls], [client], every_s=every_s)
        yield servers, client, served
        await served.aclose()
        await client.aclose()


def used(client):
    return client._http.used


async def test_nothing_may_be_played_until_a_server_has_a_version():
    async with watched(2) as ((one, other), client, served):
        assert await served.refresh() is None
        one.version = "0"
        assert await served.refresh() == 0
        assert (client.policy_version, used(client)) == (0, [one.url])
        other.version = "0"
        await served.refresh()
        assert used(client) == [one.url, other.url]


async def test_the_version_is_that_of_the_server_which_is_behind():
    async with watched(2) as ((one, other), client, served):
        one.version, other.version = "12", "9"
        assert (await served.refresh(), client.policy_version) == (9, 9)
        other.version = "12"
        assert (await served.refresh(), client.policy_version) == (12, 12)


async def test_a_server_that_stays_behind_gets_no_more_requests(monkeypatch):
    monkeypatch.setattr(server_versions, "BEHIND_S", 0.1)
    async with watched(2) as ((one, other), client, served):
        one.version, other.version = "12", "9"
        assert await served.refresh() == 9
        await asyncio.sleep(0.2)
        assert await served.refresh() == 12
        assert used(client) == [one.url]


async def test_servers_that_join_and_leave_are_found(monkeypatch, caplog):
    monkeypatch.setattr(server_versions, "FIND_S", 0.0)
    async with running(2, {}) as (one, other):
        there = [one.url]

        async def joined():
            return there

        client = VLLMTokenClient(one.url, render)
        served = ServedVersions([], [client], every_s=0.0, joined=joined)
        one.version = "4"
        assert await served.refresh() == 4
        there.append(other.url)
        await served.refresh()
        # Not before it has what was published.
        assert used(client) == [one.url]
        other.version = "4"
        await served.refresh()
        assert used(client) == [one.url, other.url]
        there.remove(one.url)
        assert await served.refresh() == 4
        assert used(client) == [other.url]
        there.clear()
        with pytest.raises(ClientError, match="no server is left in the run"):
            await served.refresh()
        assert f"{one.url} is in use no more (it has left the run)" in caplog.text
        await served.aclose()
        await client.aclose()


async def test_a_run_that_goes_back_takes_the_version_with_it():
    async with watched(1) as ((server,), _, served):
        for version in (40, 20, 21):
            server.version = str(version)
            assert await served.refresh() == version


async def test_a_server_that_lost_what_was_published_is_not_used_until_it_has_it_again():
    async with watched(2) as ((one, other), client, served):
        one.version = other.version = "4"
        await served.refresh()
        other.version = "default"
        assert await served.refresh() == 4
        assert used(client) == [one.url]
        one.version = "default"
        with pytest.raises(ClientError, match=f"{other.url} has params that it calls 'default'"):
            await served.refresh()
        one.version = other.version = "4"
        assert await served.refresh() == 4
        assert used(client) == [one.url, other.url]


async def test_a_silent_server_delays_nobody_for_long_and_then_gets_no_requests(monkeypatch):
    monkeypatch.setattr(server_versions, "PROMPT_S", 0.05)
    monkeypatch.setattr(server_versions, "SILENT_S", 0.3)
    async with watched(2) as ((one, other), client, served):
        one.version = other.version = "4"
        await served.refresh()
        other.faults["/weight_info"] = "hang"
        one.version = "5"
        assert await served.refresh() == 4
        await asyncio.sleep(0.4)
        assert await served.refresh() == 5
        assert used(client) == [one.url]


async def refreshing(served):
    """Refresh without an end: a look that takes long is not waited for, and fails a later call."""
    while True:
        await served.refresh()


async def test_a_server_that_is_gone_is_an_error_until_it_is_back():
    async with watched(1) as ((server,), _, served):
        server.version = "4"
        assert await served.refresh() == 4
        await server.stop()
        with pytest.raises(ClientError, match="weight_info"):
            await asyncio.wait_for(refreshing(served), timeout=20)
        await server.start()
        assert await served.refresh() == 4


async def test_many_looks_are_few_questions():
    async with watched(1, every_s=3600) as ((server,), _, served):
        server.version = "4"
        assert [await served.refresh() for _ in range(50)] == [4] * 50
        assert server.calls.count("/weight_info") == 1
