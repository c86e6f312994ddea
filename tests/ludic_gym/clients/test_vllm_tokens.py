from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ClientError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Sampling

END = 256
ASK = [{"role": "user", "content": "x"}]


def render(messages, reply_comes):
    ids = [i for m in messages for i in (*m["content"].encode(), END)]
    return ids + [300] * reply_comes


def answer(*ids, logprobs=None, spans=(("3", 2),), **choice):
    given = [-0.5] * len(ids) if logprobs is None else logprobs
    starts = [sum(size for _, size in spans[:i]) for i in range(len(spans))]
    return {
        "choices": [
            {
                "text": bytes(i for i in ids if i < 256).decode(),
                "finish_reason": "stop",
                "token_ids": list(ids),
                "logprobs": {"content": [{"logprob": value} for value in given]},
                "weight_versions": [
                    {"version": version, "start": start, "end": start + size}
                    for (version, size), start in zip(spans, starts, strict=True)
                ],
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
    app.router.add_post("/inference/v1/generate", handler)
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
        "token_ids": [ord("x"), END, 300],
        "output_mode": "text",
        "sampling_params": {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": 5,
            "seed": 1,
            "logprobs": 0,
        },
    }
    so_far = calls[0].prompt_ids + calls[0].completion_ids
    assert calls[1].prompt_ids[: len(so_far)] == so_far
    assert calls[1].completion_ids == (66, END)
    assert calls[1].logprobs == (-0.5, -0.5)
    assert calls[1].policy_version == 3
    assert calls[1].text == "B"


async def test_tokens_and_log_probs_have_to_match():
    async with client_of(answer(65, END, logprobs=[-0.5])) as (client, _):
        with pytest.raises(ClientError, match="2 completion ids but 1 log-probs"):
            await client.complete(ASK, Sampling())


async def test_tokens_carry_the_version_that_sampled_them_and_the_call_the_oldest():
    reply = answer(65, 66, 67, END, spans=(("2", 3), ("3", 1)))
    async with client_of(reply) as (client, _):
        completion = await client.complete(ASK, Sampling())

    assert completion.versions == (2, 2, 2, 3)
    assert completion.policy_version == 2


async def test_a_server_that_lost_what_was_published_is_found_out():
    async with client_of(answer(65, END, spans=(("default", 2),))) as (client, _):
        with pytest.raises(ClientError, match=r"'default'.*version 3 was published.*started again"):
            await client.complete(ASK, Sampling())


@pytest.mark.parametrize("spans", [(("3", 1),), (("3", 1), ("4", 2))])
async def test_versions_have_to_cover_the_tokens(spans):
    async with client_of(answer(65, END, spans=spans)) as (client, _):
        with pytest.raises(ClientError, match="2 tokens, but weight_versions of"):
            await client.complete(ASK, Sampling())


async def test_an_adapter_is_its_own_version_whatever_the_base_model_is_called():
    async with client_of(answer(65, END, spans=(("default", 2),))) as (client, bodies):
        client.use_model("policy-v3")
        completion = await client.complete(ASK, Sampling())

    assert bodies[0]["model"] == "policy-v3"
    assert completion.policy_version == 3
    assert completion.versions is None
    assert client.in_flight("policy-v3") == 0


async def test_the_experts_of_a_mixture_come_as_the_server_sends_them():
    given = answer(7, 8, routed_experts="k05VTVBZ")
    wrong = answer(7, 8, routed_experts=[1])
    async with client_of(given, answer(7, 8), wrong) as (client, _):
        ids, sampling = [1, 2], Sampling(max_tokens=2)
        assert (await client.continued(ids, sampling)).routed_experts == "k05VTVBZ"
        assert (await client.continued(ids, sampling)).routed_experts is None
        with pytest.raises(ClientError, match="no text in base64"):
            await client.continued(ids, sampling)
