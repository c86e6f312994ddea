"""Servers that are refused, and fleets that change."""

import asyncio

import pytest
from aiohttp import web

from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.types import Sampling

HOT = Sampling(temperature=0.7)


@pytest.mark.parametrize("sampling", [HOT, Sampling(top_p=0.9)])
async def test_a_server_that_gives_log_probs_before_temperature_is_refused(http, sampling):
    chat = http.replying(http.answer())
    async with http.serving(chat, probe=http.raw) as url, VLLMChatClient(url, "m") as client:
        with pytest.raises(ClientError, match="--logprobs-mode processed_logprobs"):
            await client.complete(http.ASK, sampling)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0)])
async def test_at_temperature_1_any_server_will_do(http, sampling):
    chat = http.replying(http.answer())
    async with http.serving(chat, probe=http.raw) as url, VLLMChatClient(url, "m") as client:
        assert (await client.complete(http.ASK, sampling)).text == "4"


async def test_only_the_servers_in_use_are_asked(http):
    async def other(request):
        return web.json_response(http.answer("5"))

    async with (
        http.serving(http.replying(http.answer("4"))) as first,
        http.serving(other) as second,
        VLLMChatClient([first, f"{second}/v1"], "m") as client,
    ):
        client.use([first])
        assert (await client.complete(http.ASK, Sampling())).text == "4"
        # Now the server that holds the prompt is no longer among them.
        client.use([second])
        texts = [(await client.complete(http.ASK, Sampling())).text for _ in range(3)]
        with pytest.raises(ConfigError, match="one or more http"):
            client.use([])
    assert texts == ["5"] * 3


async def test_requests_in_flight_are_counted_by_the_adapter_they_asked_for(http):
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request):
        arrived.set()
        await go_on.wait()
        return web.json_response(http.answer())

    async with http.serving(slow) as url, VLLMChatClient(url, "m") as client:
        client.use_model("policy-v1")
        request = asyncio.create_task(client.complete(http.ASK, Sampling()))
        await arrived.wait()
        client.use_model("policy-v2")
        assert (client.in_flight("policy-v1"), client.in_flight("policy-v2")) == (1, 0)
        go_on.set()
        await request
        assert client.in_flight("policy-v1") == 0


async def test_adapters_do_not_hide_which_model_a_server_has(http):
    async def models(request):
        return web.json_response(
            {"data": [{"id": "base", "parent": None}, {"id": "policy-v1", "parent": "base"}]}
        )

    async with http.serving(http.replying(), models=models) as url, VLLMChatClient(url) as client:
        assert await client.model() == "base"
