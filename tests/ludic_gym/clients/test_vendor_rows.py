"""Every row of what vendors send and accept, through a server on this machine."""

import pytest
from vendors.chat import CALLS, TEXTS
from vendors.dialogs import BRIEF, DIALOGS, REFUSED, made, result, said
from vendors.faults import FAULTS
from vendors.messages import MESSAGES
from vendors.rows import reply
from vendors.server import serving
from vendors.streams import STREAMS

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.tool_use import NativeTools, ToolUse
from ludic_gym.types import Sampling

ASK = [{"role": "user", "content": "2+2?"}]
FAST = HttpOptions(backoff_s=0.001, request_timeout_s=5)
GOOD = {
    OpenAIChatClient: {"choices": [{"message": {"content": "good"}, "finish_reason": "stop"}]},
    AnthropicChatClient: {"content": [{"type": "text", "text": "good"}], "stop_reason": "end_turn"},
}


def add(a: int) -> int:
    """Twice the number."""
    return 2 * a


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


@pytest.mark.parametrize("row", DIALOGS, ids=lambda row: row.name)
@pytest.mark.parametrize("kind", [OpenAIChatClient, AnthropicChatClient])
async def test_what_is_sent_of_a_dialog_can_be_read_by_every_server(kind, row):
    async with serving((200, GOOD[kind])) as (url, seen), kind(url, "m", options=FAST) as client:
        completion = await client.complete(row.messages, Sampling())
    # The record has the dialog as it was.
    assert list(completion.call.messages) == row.messages
    (body,) = seen
    if kind is OpenAIChatClient:
        assert body["messages"] == row.sent
    else:
        turns = [(turn["role"], turn["content"]) for turn in body["messages"]]
        assert (body.get("system"), turns) == (row.system, row.turns)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
async def test_a_dialog_that_a_server_refuses_is_sent_in_the_form_that_it_takes(row):
    refusal = {"error": {"message": row.words}}
    good = (200, GOOD[OpenAIChatClient])
    async with (
        serving((row.status, refusal), good) as (url, seen),
        OpenAIChatClient(url, "m", options=FAST) as client,
    ):
        for _ in range(2):
            assert (await client.complete(row.messages, Sampling())).text == "good"
    # The refusal is learned from once.
    assert [body["messages"] for body in seen[1:]] == [row.sent] * 2


async def test_a_refusal_that_a_change_does_not_mend_is_an_error():
    refusal = {"error": {"message": "System role not supported"}}
    async with (
        serving((400, refusal)) as (url, seen),
        OpenAIChatClient(url, "m", options=FAST) as client,
    ):
        with pytest.raises(ClientError, match="System role not supported"):
            await client.complete([BRIEF, *ASK], Sampling())
    assert len(seen) == 2


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_and_signatures_of_calls_go_back_as_they_came(field):
    call = made(extra_content={"google": {"thought_signature": "c2ln"}})
    thinks = reply("tool_calls", tool_calls=[call], **{field: "2 and 2"})
    async with (
        serving((200, thinks), (200, GOOD[OpenAIChatClient])) as (url, seen),
        OpenAIChatClient(url, "m", options=FAST) as client,
    ):
        policy = ToolUse(ChatPolicy(client), [add])
        policy.observe("2+2?")
        await policy.act(Sampling())
    sent = seen[1]["messages"][1]
    assert sent == {"role": "assistant", "content": None, field: "2 and 2", "tool_calls": [call]}


async def test_a_server_that_refuses_thoughts_gets_none():
    thinks = reply("tool_calls", tool_calls=[made()], reasoning="2 and 2")
    refusal = {"error": {"message": "messages.1: property 'reasoning' is unsupported"}}
    async with (
        serving((200, thinks), (400, refusal), (200, GOOD[OpenAIChatClient])) as (url, seen),
        OpenAIChatClient(url, "m", options=FAST) as client,
    ):
        policy = ToolUse(ChatPolicy(client), [add])
        policy.observe("2+2?")
        assert (await policy.act(Sampling())).action == "good"
    assert ["reasoning" in body["messages"][-2] for body in seen[1:]] == [True, False]


async def test_a_tool_that_does_not_exist_gets_a_name_that_servers_take():
    calls = [made(name="functions.add it"), made("c2", "a.b")]
    dialog = [*ASK, said("assistant", None, tool_calls=calls), result(), result(id="c2")]
    tool = {"type": "function", "function": {"name": "a.b", "parameters": {"type": "object"}}}
    good = (200, GOOD[OpenAIChatClient])
    async with serving(good) as (url, seen), OpenAIChatClient(url, "m", options=FAST) as client:
        await client.complete(dialog, Sampling(), [tool])
    _, called, *results = seen[0]["messages"]
    names = [call["function"]["name"] for call in called["tool_calls"]]
    assert names == [each["name"] for each in results] == ["functions_add_it", "a.b"]


async def test_calls_without_a_thought_have_its_field_where_the_server_sends_thoughts():
    thinks = reply("tool_calls", tool_calls=[made()], reasoning_content="2 and 2")
    calls = reply("tool_calls", tool_calls=[made("c2")])
    async with (
        serving((200, thinks), (200, calls), (200, GOOD[OpenAIChatClient])) as (url, seen),
        OpenAIChatClient(url, "m", options=FAST) as client,
    ):
        policy = ToolUse(ChatPolicy(client), [add])
        policy.observe("2+2?")
        await policy.act(Sampling())
    thoughts = [m.get("reasoning_content") for m in seen[2]["messages"] if m["role"] == "assistant"]
    assert thoughts == ["2 and 2", " "]
