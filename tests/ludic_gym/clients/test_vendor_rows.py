"""Every row of what vendors send, through a server on this machine."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from vendors.chat import CALLS, TEXTS
from vendors.faults import FAULTS
from vendors.messages import MESSAGES
from vendors.streams import STREAMS

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.limits import HttpOptions
from ludic_gym.policies.tool_use import NativeTools
from ludic_gym.types import Sampling

ASK = [{"role": "user", "content": "2+2?"}]
FAST = HttpOptions(backoff_s=0.001, request_timeout_s=5)
GOOD = {
    OpenAIChatClient: {"choices": [{"message": {"content": "good"}, "finish_reason": "stop"}]},
    AnthropicChatClient: {"content": [{"type": "text", "text": "good"}], "stop_reason": "end_turn"},
}


@asynccontextmanager
async def serving(*replies):
    """A server that sends each reply once, and the last one from then on; address and requests."""
    left, seen = list(replies), []

    async def respond(request):
        seen.append(await request.json())
        status, sent = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(sent, str):
            kind = "text/html" if sent.startswith("<") else "text/event-stream"
            return web.Response(text=sent, status=status, content_type=kind)
        return web.json_response(sent, status=status)

    app = web.Application()
    app.router.add_post("/chat/completions", respond)
    app.router.add_post("/v1/messages", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        pytest.param(kind, row, id=f"{dialect}: {row.name}")
        for dialect, kind, rows in (
            ("chat", OpenAIChatClient, [*CALLS, *TEXTS, *FAULTS, *STREAMS]),
            ("messages", AnthropicChatClient, MESSAGES),
        )
        for row in rows
    ],
)
async def test_what_a_vendor_sends_is_read(kind, row):
    async with (
        serving((row.status, row.sent), (200, GOOD[kind])) as (url, seen),
        kind(url, "m", options=FAST) as client,
    ):
        if row.error is not None:
            with pytest.raises(row.error) as caught:
                await client.complete(ASK, Sampling())
            assert type(caught.value) is row.error
        else:
            read = await client.complete(ASK, Sampling())
            assert (read.text, read.reasoning, read.finish_reason) == (
                row.text,
                row.reasoning,
                row.finish,
            )
            calls = NativeTools().calls_in(read)
            assert [(call.name, call.arguments) for call in calls] == row.calls
            # Results name their calls by it.
            assert len({call.id for call in calls} - {""}) == len(calls)
        assert len(seen) == row.tries
