"""A chat server on this machine, and a client that asks it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web

from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Completion, Message, Sampling

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


async def processed(request):
    """Log-probs after temperature and top_k: of one token that is left, 0."""
    return web.json_response(answer(logprobs=(0.0, 0.0)))


async def raw(request):
    """As vLLM without --logprobs-mode: neither changes log-probs."""
    return web.json_response(answer(logprobs=(0.0, -1.5)))


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    probe: Handler = processed,
    metrics: Handler | None = None,
    **routes: Handler,
) -> AsyncIterator[str]:
    """A server whose chat route is `handler`, and `probe` for a client's probes; its address."""

    async def chat(request):
        body = json.loads(await request.text() or "{}")
        is_probe = body.get("top_k") == 1 and body.get("temperature") == 2.0
        return await (probe if is_probe else handler)(request)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/messages", chat)
    if metrics is not None:
        app.router.add_get("/metrics", metrics)
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
    """Completion that VLLMChatClient makes of the handler's response."""
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


@pytest.fixture
def http() -> SimpleNamespace:
    """Server and clients for tests of HTTP clients."""
    return SimpleNamespace(
        ASK=ASK,
        FAST=FAST,
        answer=answer,
        serving=serving,
        asked=asked,
        replying=replying,
        raw=raw,
        processed=processed,
    )
