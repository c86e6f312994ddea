"""Anthropic's messages format, against a server that refuses what Anthropic's does."""

import json

import pytest
from aiohttp import web

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling, ToolCall

FAST = HttpOptions(backoff_s=0.001, request_timeout_s=5)
ASK = [{"role": "user", "content": "2+2?"}]
THOUGHT = {"type": "thinking", "thinking": "2 and 2", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
}


def message(*content, stop_reason="end_turn", **usage):
    """A response of the messages route."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1-20260101",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
    }


def text(value="4"):
    return {"type": "text", "text": value}


def refusal(status, kind, reason, **headers):
    error = {"type": "error", "error": {"type": kind, "message": reason}, "request_id": "req_1"}
    return web.json_response(error, status=status, headers=headers)


@pytest.fixture
async def served():
    """A function that starts a server with these responses, in order: its client and requests."""
    runners = []

    async def start(*replies, model="claude-1", **options):
        left, seen = list(replies), []

        async def handler(request):
            body = await request.json()
            seen.append((request.headers, body))
            complaint = complaint_about(body)
            if complaint:
                return refusal(400, "invalid_request_error", complaint)
            reply = left.pop(0)
            return reply if isinstance(reply, web.StreamResponse) else web.json_response(reply)

        async def models(request):
            return web.json_response({"data": [{"id": "claude-1"}], "has_more": False})

        app = web.Application()
        app.router.add_post("/v1/messages", handler)
        app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        client = AnthropicChatClient(url, model, options=FAST, **options)
        runners.append(client)
        return client, seen

    yield start
    for made in reversed(runners):
        await (made.cleanup() if isinstance(made, web.AppRunner) else made.aclose())


def complaint_about(body):
    """Anthropic's refusal of a request in another format; "" if there is nothing to refuse."""
    known = {"model", "messages", "system", "max_tokens", "temperature", "top_p", "top_k"}
    known |= {"stop_sequences", "tools", "thinking"}
    for name in body:
        if name not in known:
            return f"{name}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    for turn in body["messages"]:
        if set(turn) != {"role", "content"} or turn["role"] not in ("user", "assistant"):
            return f"messages: Unexpected message {turn}"
        if not turn["content"]:
            return "messages: content must not be empty"
        for block in turn["content"]:
            if block["type"] == "text" and not block["text"]:
                return "messages: text content blocks must be non-empty"
    return ""


async def test_a_dialog_is_sent_and_its_reply_read_in_anthropics_format(served, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    reply = message(THOUGHT, text("It is "), text("4"), cache_read_input_tokens=80)
    client, seen = await served(reply)
    rules = {"role": "system", "content": "Be brief."}

    completion = await client.complete([rules, *ASK], Sampling(seed=3, stop=("!",)))

    ((headers, body),) = seen
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("secret", "2023-06-01")
    assert "Authorization" not in headers
    assert body == {
        "model": "claude-1",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [text("2+2?")]}],
        "max_tokens": 256,
        "temperature": 1.0,
        "top_p": 1.0,
        "stop_sequences": ["!"],
    }
    assert (completion.text, completion.reasoning) == ("It is 4", "2 and 2")
    assert completion.finish_reason == "stop"
    call = completion.call
    assert (call.model, call.messages[0]) == ("claude-1-20260101", rules)
    assert call.parameters["stop_sequences"] == ["!"]
    # The cached tokens are a part of the prompt that `input_tokens` does not count.
    assert (call.usage["prompt_tokens"], call.usage["completion_tokens"]) == (90, 5)
    assert call.usage["cache_read_input_tokens"] == call.usage["cached_tokens"] == 80
    assert (client.usage.prompt_tokens, client.usage.completion_tokens) == (90, 5)
    assert client.usage.cached_tokens == 80


async def test_tools_are_offered_called_and_their_results_sent_with_the_thinking(served):
    client, seen = await served(message(THOUGHT, USE, stop_reason="tool_use"), message(text()))

    completion = await client.complete(ASK, Sampling(), [TOOL])

    assert seen[0][1]["tools"] == [
        {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
    ]
    assert (completion.text, completion.finish_reason) == ("", "tool_calls")
    assert completion.tool_calls == (ToolCall(id="toolu_1", name="add", arguments='{"a": 2}'),)

    function = {"name": "add", "arguments": '{"a": 2}'}
    calls = [{"id": "toolu_1", "type": "function", "function": function}]
    dialog = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "4"},
        {"role": "user", "content": "So?", "name": "tools"},
    ]
    await client.complete(dialog, Sampling(), [TOOL])

    # Anthropic refuses the results of tools without the signed thinking before the call.
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}
    assert seen[1][1]["messages"][1:] == [
        {"role": "assistant", "content": [THOUGHT, USE]},
        {"role": "user", "content": [result, text("So?")]},
    ]


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (400, "invalid_request_error", "messages: Input should be a valid list"),
        (401, "authentication_error", "invalid x-api-key"),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
)
async def test_a_refusal_is_shown_and_not_sent_again(served, status, kind, reason):
    client, seen = await served(refusal(status, kind, reason))
    with pytest.raises(ClientError, match=f"returned {status}: {reason}$") as caught:
        await client.complete(ASK, Sampling())
    assert (len(seen), caught.value.status) == (1, status)


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        ({}, "'content' is None"),
        (message({"type": "text"}), "'text' is None"),
        (message("4"), "a block of the response is '4'"),
    ],
)
async def test_a_response_with_a_wrong_part_is_an_error_that_shows_it(served, response, complaint):
    client, _ = await served(response)
    with pytest.raises(ClientError, match=complaint):
        await client.complete(ASK, Sampling())


async def test_broken_arguments_of_an_earlier_call_are_never_sent_back(served):
    client, seen = await served(message(text()))
    function = {"name": "add", "arguments": "{a: 2"}
    calls = [{"id": "1", "type": "function", "function": function}]
    broken = {"role": "assistant", "content": None, "tool_calls": calls}
    await client.complete([*ASK, broken], Sampling())
    assert seen[-1][1]["messages"][-1]["content"][-1]["input"] == {}


async def test_what_the_api_cannot_take_is_refused_before_it_is_sent(served):
    client, seen = await served()
    with pytest.raises(ConfigError, match=r"no min_p, got min_p=0\.1"):
        await client.complete(ASK, Sampling(min_p=0.1))
    assert seen == []


async def test_parameters_are_replaced_left_out_and_added(served):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    params = {"top_p": None, "max_tokens": 2048}
    client, seen = await served(message(text()), params=params, extra_body=thinking)
    await client.complete(ASK, Sampling())
    body = seen[0][1]
    assert "top_p" not in body
    assert (body["max_tokens"], body["thinking"]) == (2048, thinking["thinking"])


async def test_the_servers_models_are_listed(served):
    client, _ = await served(message(text()), model=None)
    assert (await client.complete(ASK, Sampling())).text == "4"
    assert json.dumps(await client.models()) == '["claude-1"]'
