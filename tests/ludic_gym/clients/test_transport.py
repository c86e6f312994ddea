"""Retries, time limits, routing and accounting of requests."""

import asyncio
import gc
import random
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest
from aiohttp import web

from ludic_gym.clients import transport
from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling


async def test_trouble_that_stays_is_an_error_that_counts_the_attempts(http):
    trouble = [web.Response(status=500, text="still loading") for _ in range(3)]
    options = HttpOptions(backoff_s=0.001, max_retries=2)

    with pytest.raises(ClientError, match="returned 500: still loading, 3 times in a row"):
        await http.asked(http.replying(*trouble), options=options)


async def test_pauses_double_and_jitter_takes_up_to_half_off(http):
    loop = asyncio.get_running_loop()
    times = []

    async def handler(request):
        times.append(loop.time())
        return web.Response(status=500)

    options = HttpOptions(backoff_s=0.04, max_retries=2, jitter=lambda: 0.5)
    with pytest.raises(ClientError):
        await http.asked(handler, options=options)

    # 0.04 and 0.08, less a quarter each.
    assert times[1] - times[0] >= 0.029
    assert times[2] - times[1] >= 0.059


@pytest.mark.parametrize("in_words", [False, True])
async def test_retry_after_is_kept_to(http, in_words):
    loop = asyncio.get_running_loop()
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    wait = {"Retry-After": later if in_words else "0.2"}
    start = loop.time()

    await http.asked(http.replying(web.Response(status=429, headers=wait), http.answer()))

    assert loop.time() - start >= 0.2


async def test_a_retry_after_that_is_too_long_is_an_error_at_once(http):
    response = web.Response(status=429, headers={"Retry-After": "3600"})

    with pytest.raises(ClientError, match="a pause of 3600 s, longer than max_wait_s=600"):
        await http.asked(http.replying(response))


async def test_an_answer_that_takes_too_long_is_not_waited_for(http):
    async def hangs(request):
        await asyncio.sleep(10)

    with pytest.raises(ClientError, match=r"sent no response within request_timeout_s=0\.05"):
        await http.asked(hangs, options=HttpOptions(request_timeout_s=0.05))


async def test_an_answer_that_drips_is_not_waited_for_either(http):
    async def drips(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" ")
            await asyncio.sleep(0.01)

    with pytest.raises(ClientError, match=r"request_timeout_s=0\.1"):
        await http.asked(drips, options=HttpOptions(request_timeout_s=0.1))


async def test_a_connection_lost_in_mid_answer_is_tried_again(http):
    calls = 0

    async def handler(request):
        nonlocal calls
        calls += 1
        if calls > 1:
            return web.json_response(http.answer())
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        request.transport.close()
        return response

    assert (await http.asked(handler)).text == "4"


async def test_cancelling_reaches_the_server(http):
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request):
        arrived.set()
        try:
            await asyncio.sleep(10)
        finally:
            gone.set()

    async with http.serving(handler) as url, VLLMChatClient(url, "m") as client:
        call = asyncio.create_task(client.complete(http.ASK, Sampling()))
        await arrived.wait()
        call.cancel()
        await asyncio.wait_for(gone.wait(), 2)


@asynccontextmanager
async def servers(http, count, **options):
    """Stand-ins of vLLM that know how many requests they have; [(address, requests so far)]."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server(http, **options)) for _ in range(count)]


@asynccontextmanager
async def server(http, *, seconds=0.1, figures=None):
    seen, now = [], 0

    async def handler(request):
        nonlocal now
        now += 1
        seen.append((await request.json())["messages"][0]["content"])
        # Not all in step: a look between two rounds would find every server idle.
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
        now -= 1
        return web.json_response(http.answer())

    async def metrics(request):
        text = f'vllm:num_requests_running{{model="m"}} {now}.0\nvllm:num_requests_waiting 0\n'
        return await figures() if figures else web.Response(text=text)

    async with http.serving(handler, metrics=metrics) as url:
        yield url, seen


@pytest.mark.long
async def test_many_programs_with_one_request_each_spread_over_the_servers(http, monkeypatch):
    # In the same proportion to the time of a request as one second to a long completion.
    monkeypatch.setattr(transport, "LOOK_S", 0.08)
    async with servers(http, 2, seconds=0.4) as ((one, seen_by_one), (two, seen_by_two)):
        clients = [VLLMChatClient([one, two], "m") for _ in range(24)]

        async def program(client, requests):
            for _ in range(requests):
                # They share their first message, and each would like the server that has it.
                await client.complete(http.ASK, Sampling())

        # The first ones are thrown like dice: no server has anything to do yet.
        await asyncio.gather(*(program(client, 4) for client in clients))
        before = len(seen_by_one)
        await asyncio.gather(*(program(client, 12) for client in clients))
        for client in clients:
            await client.aclose()
        assert len(seen_by_one) + len(seen_by_two) == 16 * 24
        # 58:42 at most in 48 runs; a busy machine makes figures older than here.
        assert 0.35 * 12 * 24 <= len(seen_by_one) - before <= 0.65 * 12 * 24


async def test_the_turns_of_a_dialog_go_to_the_server_that_has_its_beginning(http):
    async with (
        servers(http, 3) as found,
        VLLMChatClient([url for url, _ in found], "m") as client,
    ):

        async def episode(number):
            dialog = [{"role": "user", "content": f"task {number}"}]
            for turn in range(5):
                answer = await client.complete(dialog, Sampling())
                dialog = [*dialog, {"role": "assistant", "content": answer.text}]
                dialog += [{"role": "user", "content": str(turn)}]

        await asyncio.gather(*map(episode, range(12)))
        # All five turns of nearly every task at one server; load moves a few.
        own = [sum(f"task {number}" in seen for _, seen in found) for number in range(12)]
        assert sum(own) <= 15
        assert all(len(seen) >= 10 for _, seen in found)


async def test_a_silent_server_costs_its_own_requests_alone(http):
    async def silent():
        await asyncio.sleep(60)

    async with (
        server(http) as (sound, seen),
        server(http, figures=silent) as (dead, seen_by_dead),
        VLLMChatClient([sound, dead], "m") as client,
    ):
        for number in range(20):
            await client.complete([{"role": "user", "content": str(number)}], Sampling())
        assert (len(seen), len(seen_by_dead)) == (20, 0)


async def test_a_failed_request_is_sent_to_another_server(http):
    async with (
        http.serving(http.replying(web.Response(status=500))) as broken,
        http.serving(http.replying(http.answer())) as sound,
        VLLMChatClient([broken, sound], "m", options=http.FAST) as client,
    ):
        assert (await client.complete(http.ASK, Sampling())).text == "4"


async def test_the_key_comes_from_the_environment(http, monkeypatch):
    keys = []

    async def handler(request):
        keys.append(request.headers.get("Authorization"))
        return web.json_response(http.answer())

    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    await http.asked(handler)
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    await http.asked(handler)
    await http.asked(handler, api_key_env="OTHER_KEY")

    assert keys == [None, "Bearer secret", None]


async def test_usage_is_counted(http):
    replies = http.replying(
        http.answer(), web.Response(status=500), http.answer(), web.Response(status=400)
    )
    async with http.serving(replies) as url, VLLMChatClient(url, "m", options=http.FAST) as client:
        await client.complete(http.ASK, Sampling())
        await client.complete(http.ASK, Sampling())
        with pytest.raises(ClientError):
            await client.complete(http.ASK, Sampling())

        usage = client.usage

    assert (usage.requests, usage.retries, usage.failures) == (2, 1, 1)
    assert (usage.prompt_tokens, usage.completion_tokens) == (6, 4)


async def test_one_client_works_from_several_event_loops(http):
    async with (
        http.serving(http.replying(http.answer(), http.answer())) as url,
        VLLMChatClient(url, "m") as client,
    ):

        async def ask_and_close():
            completion = await client.complete(http.ASK, Sampling())
            await client.aclose()
            return completion

        elsewhere = await asyncio.to_thread(asyncio.run, ask_and_close())
        here = await client.complete(http.ASK, Sampling())

    assert here == elsewhere


async def test_connections_are_closed_with_the_event_loop_that_made_them(http):
    def open_sessions():
        # By type, because `isinstance` wakes objects of other packages, which then warn.
        found = (item for item in gc.get_objects() if type(item) is aiohttp.ClientSession)
        return {id(session) for session in found if not session.closed}

    before = open_sessions()
    async with http.serving(http.replying(http.answer(), http.answer())) as url:
        client = VLLMChatClient(url, "m")
        for _ in range(2):
            await asyncio.to_thread(asyncio.run, client.complete(http.ASK, Sampling()))

    assert client.usage.requests == 2
    assert open_sessions() <= before


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"max_retries": -1},
        {"request_timeout_s": 0.0},
        {"connect_timeout_s": -1.0},
        {"max_wait_s": -1.0},
    ],
)
def test_http_options_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError, match=str(next(iter(wrong.values())))):
        HttpOptions(**wrong)
