"""The HTTP clients against a real server on this machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from ludic_gym.clients import HttpOptions, OpenAIChatClient, VLLMChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.types import Completion, Message, Sampling, ToolCall

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ASK: list[Message] = [{"role": "user", "content": "2+2?"}]
FAST = HttpOptions(backoff_s=0.001, request_timeout_s=5)


def answer(text="4", ids=(52, 9), logprobs=(-0.25, -0.5), **choice):
    """A chat completion as vLLM writes it."""
    content = [{"token": "?", "logprob": value} for value in logprobs]
    return {
        "prompt_token_ids": [1, 2, 3],
        "choices": [
            {
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
                "token_ids": list(ids),
                "logprobs": {"content": content},
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


@asynccontextmanager
async def serving(handler: Handler, **routes: Handler) -> AsyncIterator[str]:
    """A server whose chat route is `handler`; its address."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    for name, route in routes.items():
        app.router.add_get(f"/v1/{name}", route)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def asked(handler, sampling=Sampling(), tools=(), messages=ASK, **kwargs) -> Completion:  # noqa: B008
    """What VLLMChatClient makes of the handler's answer."""
    async with (
        serving(handler) as url,
        VLLMChatClient(url, "m", options=kwargs.pop("options", FAST), **kwargs) as client,
    ):
        return await client.complete(messages, sampling, tools)


def replying(*answers) -> Handler:
    """Gives the answers in order: objects as JSON, responses as they are."""
    left = list(answers)

    async def handler(request):
        reply = left.pop(0)
        return reply if isinstance(reply, web.StreamResponse) else web.json_response(reply)

    return handler


async def test_an_answer_keeps_its_exact_tokens():
    sampling = Sampling(temperature=0.5)

    completion = await asked(replying(answer()), sampling, policy_version=7)

    assert completion == Completion(
        text="4",
        finish_reason="stop",
        sampling=sampling,
        prompt_ids=(1, 2, 3),
        completion_ids=(52, 9),
        logprobs=(-0.25, -0.5),
        policy_version=7,
    )


async def test_a_request_says_all_that_matters():
    bodies = []

    async def handler(request):
        bodies.append(await request.json())
        return web.json_response(answer())

    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",), seed=2**62)
    await asked(handler, sampling, [tool], extra_body={"min_p": 0.1})

    assert bodies == [
        {
            "model": "m",
            "messages": ASK,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop": ["\n"],
            "seed": 2**62,
            "tools": [tool],
            "return_token_ids": True,
            "logprobs": True,
            "top_logprobs": 0,
            "min_p": 0.1,
        }
    ]


async def test_a_dialog_that_ends_with_the_assistant_is_continued():
    bodies = []

    async def handler(request):
        bodies.append(await request.json())
        return web.json_response(answer())

    await asked(handler, messages=[*ASK, {"role": "assistant", "content": "It is"}])

    assert bodies[0]["continue_final_message"] is True
    assert bodies[0]["add_generation_prompt"] is False


async def test_tool_calls_come_through():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    completion = await asked(replying(answer(message=message, finish_reason="tool_calls")))

    assert completion.text == ""
    assert completion.finish_reason == "tool_calls"
    assert completion.tool_calls == (ToolCall(id="c1", name="add", arguments='{"a": 1}'),)


async def test_a_server_without_token_ids_can_be_benchmarked_but_not_trained_on():
    bare = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}

    async with serving(replying(bare, answer(ids=[]) | {"prompt_token_ids": None})) as url:
        async with OpenAIChatClient(url, "m") as client:
            completion = await client.complete(ASK, Sampling())
        async with VLLMChatClient(url, "m") as client:
            with pytest.raises(ClientError, match="benchmarked with OpenAIChatClient"):
                await client.complete(ASK, Sampling())

    assert completion.text == "4"
    assert completion.prompt_ids is None


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_or_may_not_end_with_the_version(path):
    async with serving(replying(answer())) as url, VLLMChatClient(url + path, "m") as client:
        assert (await client.complete(ASK, Sampling())).text == "4"


async def test_the_only_model_of_a_server_needs_no_name():
    names = []

    async def handler(request):
        names.append((await request.json())["model"])
        return web.json_response(answer())

    models = replying({"data": [{"id": "tiny"}]})
    async with serving(handler, models=models) as url, VLLMChatClient(url) as client:
        await client.complete(ASK, Sampling())
        await client.complete(ASK, Sampling())

    assert names == ["tiny", "tiny"]


async def test_one_of_several_models_has_to_be_named():
    models = replying({"data": [{"id": "a"}, {"id": "b"}]})
    async with serving(replying(), models=models) as url, VLLMChatClient(url) as client:
        with pytest.raises(ClientError, match=r"2 models \['a', 'b'\]; name one"):
            await client.complete(ASK, Sampling())


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_server_in_trouble_is_asked_again(status):
    trouble = web.Response(status=status, text="busy")

    assert (await asked(replying(trouble, answer()))).text == "4"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refused_request_is_not_sent_again_and_shows_what_the_server_says(status):
    with pytest.raises(ClientError, match=f"answered {status}: the prompt is too long"):
        await asked(replying(web.Response(status=status, text="the prompt is too long")))


async def test_a_redirect_is_not_followed_with_the_key_in_hand():
    with pytest.raises(ClientError, match="answered 302"):
        await asked(replying(web.Response(status=302, headers={"Location": "/elsewhere"})))


async def test_trouble_that_stays_is_an_error_that_counts_the_attempts():
    trouble = [web.Response(status=503, text="still loading") for _ in range(3)]
    options = HttpOptions(backoff_s=0.001, max_retries=2)

    with pytest.raises(ClientError, match="answered 503: still loading, 3 times in a row"):
        await asked(replying(*trouble), options=options)


async def test_pauses_double_and_jitter_takes_up_to_half_off():
    loop = asyncio.get_running_loop()
    times = []

    async def handler(request):
        times.append(loop.time())
        return web.Response(status=500)

    options = HttpOptions(backoff_s=0.04, max_retries=2, jitter=lambda: 0.5)
    with pytest.raises(ClientError):
        await asked(handler, options=options)

    # 0.04 and 0.08, less a quarter each.
    assert times[1] - times[0] >= 0.029
    assert times[2] - times[1] >= 0.059


@pytest.mark.parametrize("in_words", [False, True])
async def test_retry_after_is_kept_to(in_words):
    loop = asyncio.get_running_loop()
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    wait = {"Retry-After": later if in_words else "0.2"}
    start = loop.time()

    await asked(replying(web.Response(status=429, headers=wait), answer()))

    assert loop.time() - start >= 0.2


async def test_a_retry_after_that_is_too_long_is_an_error_at_once():
    response = web.Response(status=429, headers={"Retry-After": "3600"})

    with pytest.raises(ClientError, match="asks to wait 3600 s, longer than max_pause_s=60"):
        await asked(replying(response))


async def test_an_answer_that_takes_too_long_is_not_waited_for():
    async def hangs(request):
        await asyncio.sleep(10)

    with pytest.raises(ClientError, match=r"did not answer within request_timeout_s=0\.05"):
        await asked(hangs, options=HttpOptions(request_timeout_s=0.05))


async def test_an_answer_that_drips_is_not_waited_for_either():
    async def drips(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" ")
            await asyncio.sleep(0.01)

    with pytest.raises(ClientError, match=r"request_timeout_s=0\.1"):
        await asked(drips, options=HttpOptions(request_timeout_s=0.1))


async def test_a_connection_lost_in_mid_answer_is_tried_again():
    calls = 0

    async def handler(request):
        nonlocal calls
        calls += 1
        if calls > 1:
            return web.json_response(answer())
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        request.transport.close()
        return response

    assert (await asked(handler)).text == "4"


async def test_nobody_listening_is_an_error():
    async with serving(replying()) as url:
        pass
    async with VLLMChatClient(url, "m", options=FAST) as client:
        with pytest.raises(ClientError, match="5 times in a row"):
            await client.complete(ASK, Sampling())


@pytest.mark.parametrize(
    ("malformed", "complaint"),
    [
        (web.Response(text="<html>"), "answered no JSON"),
        (web.Response(text="[]"), r"answered no JSON object: \[\]"),
        ({}, "'choices' is None"),
        ({"choices": []}, "no choice"),
        ({"choices": [{"finish_reason": "stop"}]}, "'message' is None"),
        (answer(finish_reason="abort"), "finish_reason is 'abort'"),
        (answer(finish_reason=None), "'finish_reason' is None"),
        (answer(ids=[1, 2, 3]), "3 completion ids but 2 log-probs"),
        (answer(logprobs=[-0.5]), "2 completion ids but 1 log-probs"),
        (answer(ids=["a", "b"]), r"completion ids are \['a', 'b'\]"),
        (answer(logprobs=[None, -1.0]), "not finite numbers"),
        (answer(logprobs=[float("-inf"), -1.0]), "not finite numbers"),
        (answer(message={"content": "", "tool_calls": [{"id": "x"}]}), "'function' is None"),
        (answer(message={"content": "", "tool_calls": [3]}), "got 3"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_an_error_that_shows_it(malformed, complaint):
    with pytest.raises(ClientError, match=complaint):
        await asked(replying(malformed))


async def test_cancelling_reaches_the_server():
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request):
        arrived.set()
        try:
            await asyncio.sleep(10)
        finally:
            gone.set()

    async with serving(handler) as url, VLLMChatClient(url, "m") as client:
        call = asyncio.create_task(client.complete(ASK, Sampling()))
        await arrived.wait()
        call.cancel()
        await asyncio.wait_for(gone.wait(), 2)


async def test_requests_go_to_the_server_with_the_fewest_in_flight():
    release = asyncio.Event()
    counts = {"slow": 0, "fast": 0}

    async def slow(request):
        counts["slow"] += 1
        await release.wait()
        return web.json_response(answer())

    async def fast(request):
        counts["fast"] += 1
        return web.json_response(answer())

    async with (
        serving(slow) as slow_url,
        serving(fast) as fast_url,
        VLLMChatClient([slow_url, fast_url], "m") as client,
    ):
        stuck = asyncio.create_task(client.complete(ASK, Sampling()))
        while not counts["slow"]:
            await asyncio.sleep(0)
        for _ in range(5):
            await client.complete(ASK, Sampling())
        release.set()
        await stuck

    assert counts == {"slow": 1, "fast": 5}


async def test_a_failed_request_is_sent_to_another_server():
    async with (
        serving(replying(web.Response(status=500))) as broken,
        serving(replying(answer())) as sound,
        VLLMChatClient([broken, sound], "m", options=FAST) as client,
    ):
        assert (await client.complete(ASK, Sampling())).text == "4"


async def test_no_more_requests_are_in_flight_than_allowed():
    now = most = 0

    async def handler(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return web.json_response(answer())

    options = HttpOptions(concurrency=3)
    async with serving(handler) as url, VLLMChatClient(url, "m", options=options) as client:
        await asyncio.gather(*(client.complete(ASK, Sampling()) for _ in range(12)))

    assert most == 3


async def test_the_key_comes_from_the_environment(monkeypatch):
    keys = []

    async def handler(request):
        keys.append(request.headers.get("Authorization"))
        return web.json_response(answer())

    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    await asked(handler)
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    await asked(handler)
    await asked(handler, api_key_env="OTHER_KEY")

    assert keys == [None, "Bearer secret", None]


async def test_usage_is_counted():
    replies = replying(answer(), web.Response(status=500), answer(), web.Response(status=400))
    async with serving(replies) as url, VLLMChatClient(url, "m", options=FAST) as client:
        await client.complete(ASK, Sampling())
        await client.complete(ASK, Sampling())
        with pytest.raises(ClientError):
            await client.complete(ASK, Sampling())

        usage = client.usage

    assert (usage.requests, usage.retries, usage.failures) == (2, 1, 1)
    assert (usage.prompt_tokens, usage.completion_tokens) == (6, 4)


async def test_one_client_works_from_several_event_loops():
    async with serving(replying(answer(), answer())) as url, VLLMChatClient(url, "m") as client:

        async def ask_and_close():
            completion = await client.complete(ASK, Sampling())
            await client.aclose()
            return completion

        elsewhere = await asyncio.to_thread(asyncio.run, ask_and_close())
        here = await client.complete(ASK, Sampling())

    assert here == elsewhere


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"max_retries": -1},
        {"request_timeout_s": 0.0},
        {"connect_timeout_s": -1.0},
    ],
)
def test_http_options_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError, match=str(next(iter(wrong.values())))):
        HttpOptions(**wrong)


@pytest.mark.parametrize("address", ["", [], "localhost:8000", ["http://a", "b"]])
def test_an_address_without_http_is_refused(address):
    with pytest.raises(ConfigError, match="base_url"):
        VLLMChatClient(address)


async def test_any_text_can_be_sent():
    seen = []

    async def handler(request):
        seen.append((await request.json())["messages"][0]["content"])
        return web.json_response(answer())

    odd = "\ud800 \x00 \U0001f600"
    await asked(handler, messages=[{"role": "user", "content": odd}])

    assert seen == [odd]
