from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from ludic_gym.clients import VLLMTokenClient
from ludic_gym.errors import ClientError
from ludic_gym.policies import ChatPolicy
from ludic_gym.prompts import extends
from ludic_gym.types import Sampling

END = 256


def render(messages, reply_comes):
    ids = [i for m in messages for i in (*m["content"].encode(), END)]
    return ids + [300] * reply_comes


def answer(*ids, logprobs=None, **choice):
    given = [-0.5] * len(ids) if logprobs is None else logprobs
    return {
        "choices": [
            {
                "text": bytes(i for i in ids if i < 256).decode(),
                "finish_reason": "stop",
                "token_ids": list(ids),
                "logprobs": {"token_logprobs": given},
                **choice,
            }
        ]
    }


@asynccontextmanager
async def client_of(*answers):
    """A client whose server gives the answers in order, and the bodies that the server got."""
    left, bodies = list(answers), []

    async def handler(request):
        bodies.append(await request.json())
        return web.json_response(left.pop(0))

    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with VLLMTokenClient(url, render, "m", policy_version=3) as client:
        yield client, bodies
    await runner.cleanup()


async def test_prompts_are_sent_as_the_tokens_that_were_sampled():
    async with client_of(answer(65, END), answer(66, END)) as (client, bodies):
        policy, calls = ChatPolicy(client), []
        for text in ("x", "y"):
            policy.observe(text)
            calls += (await policy.act(Sampling(seed=1, max_tokens=5))).completions

    assert bodies[0] == {
        "model": "m",
        "prompt": [ord("x"), END, 300],
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 5,
        "seed": 1,
        "logprobs": 0,
        "return_token_ids": True,
    }
    assert extends(calls[1], calls[0])
    assert calls[1].completion_ids == (66, END)
    assert calls[1].logprobs == (-0.5, -0.5)
    assert calls[1].policy_version == 3
    assert calls[1].text == "B"


async def test_tokens_and_log_probs_have_to_match():
    async with client_of(answer(65, END, logprobs=[-0.5])) as (client, _):
        with pytest.raises(ClientError, match="2 completion ids but 1 log-probs"):
            await client.complete([{"role": "user", "content": "x"}], Sampling())


async def test_tools_are_refused_where_their_calls_could_not_be_found():
    async with client_of() as (client, _):
        with pytest.raises(ClientError, match="TextTools"):
            await client.complete([{"role": "user", "content": "x"}], Sampling(), [{}])
