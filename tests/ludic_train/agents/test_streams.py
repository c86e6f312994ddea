"""Streams of the gateway: what a client gets in parts is what it would get whole."""

import asyncio
import json

from scripted_engine import ScriptedEngine, tokenizer

from ludic_train.agents.gateway import Gateway

ALPHABET = "abcdefghijklmnopqrstuvwxyz" * 3
TOOLS = [{"type": "function", "function": {"name": "add"}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
QUESTION = {"messages": [{"role": "user", "content": "?"}], "stream": True}


async def deltas(http, url, **fields):
    """Deltas of a stream of chat completions, each with the index of its choice."""
    async with http.post(f"{url}/chat/completions", json={**QUESTION, **fields}) as response:
        lines = (await response.text()).splitlines()
    chunks = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")
    ]
    return [(choice["index"], choice["delta"]) for chunk in chunks for choice in chunk["choices"]]


async def test_a_stream_that_broke_is_whole_when_it_is_requested_again(http):
    engine = ScriptedEngine(lambda prompt: ALPHABET, tokenizer(), delay_s=0.01)
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        url = gateway.base_url(session)
        async with http.post(f"{url}/chat/completions", json=QUESTION) as response:
            while b'"content":"a' not in await response.content.readline():
                pass
            response.close()
        while any(draft.clients for drafts in session._drafts.values() for draft in drafts):
            await asyncio.sleep(0.01)
        found = await deltas(http, url)
    assert "".join(delta.get("content", "") for _, delta in found) == ALPHABET
    assert len(engine.sampled) == 1


async def calls_of(http, reply, **fields):
    """Choice and index of each tool call in a stream."""
    engine = ScriptedEngine(lambda prompt: reply, tokenizer())
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        url = gateway.base_url(gateway.open())
        found = await deltas(http, url, tools=TOOLS, **fields)
    calls = [(i, call) for i, delta in found for call in delta.get("tool_calls", ())]
    return [(i, call["index"]) for i, call in calls]


async def test_a_stream_has_one_call_where_parallel_ones_are_not_wanted(http):
    assert await calls_of(http, CALL + CALL) == [(0, 0), (0, 1)]
    assert await calls_of(http, CALL + CALL, parallel_tool_calls=False) == [(0, 0)]


async def test_calls_of_a_stream_are_numbered_per_choice(http):
    assert await calls_of(http, CALL, n=2) == [(0, 0), (1, 0)]
