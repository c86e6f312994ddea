"""The probe of servers that only stream."""

import json

import pytest
from aiohttp import web

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.probe import probe
from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling

CHUNKS = (
    {"model": "m-1", "choices": [{"delta": {"role": "assistant", "content": "O"}}]},
    {"model": "m-1", "choices": [{"delta": {"content": "K"}, "finish_reason": "stop"}]},
    {"model": "m-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
)
EVENTS = (
    {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 7}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "OK"}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 2},
    },
)


def streaming(refusal, objects, refused=()):
    """A server that only streams, and refuses some fields by name. Its bodies are in `seen`."""

    async def handler(request):
        body = await request.json()
        handler.seen.append(body)
        if not body.get("stream"):
            return web.json_response({"error": {"message": refusal}}, status=400)
        for name in (name for name in refused if name in body):
            return web.json_response({"error": {"message": f"unknown {name}"}}, status=400)
        lines = [f"data: {json.dumps(each)}\n\n" for each in objects]
        return web.Response(text="".join([*lines, "data: [DONE]\n\n"]))

    handler.seen = []
    return handler


@pytest.mark.parametrize(
    "refusal",
    [
        "This model only support stream mode, please enable the stream parameter.",
        "Stream must be set to true",
        "Non-streaming requests are not supported",
        "Only supports streaming",
        "Streaming is required for this model",
    ],
)
async def test_a_server_that_only_streams_is_asked_for_streams_and_counts_tokens(http, refusal):
    handler = streaming(refusal, CHUNKS)
    async with http.serving(handler) as url, OpenAIChatClient(f"{url}/v1", "m") as client:
        call = await probe(client, Sampling())
        completion = await client.complete(http.ASK, Sampling())
    assert (completion.text, call.model, len(handler.seen)) == ("OK", "m-1", 3)
    assert handler.seen[-1]["stream_options"] == {"include_usage": True}
    assert (client.usage.prompt_tokens, client.usage.completion_tokens) == (14, 4)


async def test_options_of_streams_are_left_out_where_they_are_refused(http):
    handler = streaming("stream must be true", CHUNKS, refused=["stream_options", "seed"])
    async with http.serving(handler) as url, OpenAIChatClient(f"{url}/v1", "m") as client:
        await probe(client, Sampling())
    assert client.renamed == {"stream_options": None, "seed": None}
    assert not {"stream_options", "seed"} & set(handler.seen[-1])


async def test_a_server_of_anthropics_format_may_only_stream_too(http):
    handler = streaming("streaming is required", EVENTS)
    async with http.serving(handler) as url, AnthropicChatClient(url, "m") as client:
        await probe(client, Sampling())
        assert (await client.complete(http.ASK, Sampling())).text == "OK"
    assert (client.usage.prompt_tokens, client.usage.completion_tokens) == (14, 4)
    assert "stream_options" not in handler.seen[-1]


async def test_a_server_that_streams_and_refuses_streams_is_refused(http):
    async def handler(request):
        return web.json_response({"error": {"message": "stream must be true"}}, status=400)

    async with http.serving(handler) as url, OpenAIChatClient(f"{url}/v1", "m") as client:
        with pytest.raises(ConfigError, match="stream must be true"):
            await probe(client, Sampling())


async def test_a_key_that_gemini_does_not_know_is_named_by_its_variable(http, monkeypatch):
    async def handler(request):
        text = "API key not valid. Please pass a valid API key."
        return web.json_response([{"error": {"code": 400, "message": text}}], status=400)

    monkeypatch.setenv("GEMINI_API_KEY", "wrong")
    async with (
        http.serving(handler) as url,
        OpenAIChatClient(f"{url}/v1", "m", api_key_env="GEMINI_API_KEY") as client,
    ):
        with pytest.raises(ConfigError, match="set another key in GEMINI_API_KEY"):
            await probe(client, Sampling())
