"""The gateway and chat templates by the rows of what vendors send and accept."""

import json

import pytest
from scripted_engine import ScriptedEngine, tokenizer
from vendors.chat import CALLS, TEXTS
from vendors.dialogs import BRIEF, DIALOGS, REFUSED, made, result, said
from vendors.rows import reply
from vendors.server import serving
from vendors.streams import STREAMS

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.dialogs import is_object
from ludic_gym.errors import ConfigError
from ludic_gym.policies.tool_use import NativeTools
from ludic_gym.types import Sampling
from ludic_train.agents.gateway import Gateway
from ludic_train.models.chat_template import render_chat, with_parsed_arguments
from ludic_train.models.tokenizer import make_tokenizer

ROWS = [row for row in (*CALLS, *TEXTS, *STREAMS) if row.error is None and row.tries == 1]
# Names of Anthropic's format and of OpenAI's for ends of the other.
ENDS = {
    OpenAIChatClient: {"refusal": "stop"},
    AnthropicChatClient: {"content_filter": "refusal"},
}


@pytest.mark.parametrize("kind", [OpenAIChatClient, AnthropicChatClient])
async def test_an_agent_gets_what_a_vendor_sends_in_either_dialect(kind):
    replies = [(row.status, row.sent) for row in ROWS]
    async with (
        serving(*replies, (200, {})) as (url, _),
        OpenAIChatClient(url, "m") as client,
        Gateway(client).running() as gateway,
        kind(address(gateway, kind), "m") as agent,
    ):
        for number, row in enumerate(ROWS):
            question = [said("user", f"Question {number}")]
            read = await agent.complete(question, Sampling(max_tokens=9))
            finish = ENDS[kind].get(row.finish, row.finish)
            got = (read.text, read.reasoning, read.finish_reason)
            assert got == (row.text, row.reasoning, finish), row.name
            called = [(call.name, call.arguments) for call in NativeTools().calls_in(read)]
            assert called == [(name, agreed(kind, text)) for name, text in row.calls], row.name


def address(gateway, kind):
    url = gateway.base_url if kind is OpenAIChatClient else gateway.root_url
    return url(gateway.open())


def agreed(kind, arguments):
    """The arguments of a call as an agent gets them: Anthropic's format has objects alone."""
    if kind is OpenAIChatClient or (arguments.startswith('{"') and is_object(arguments)):
        return arguments
    return json.dumps(json.loads(arguments) if arguments == "{}" else {"arguments": arguments})


@pytest.mark.parametrize("row", DIALOGS, ids=lambda row: row.name)
async def test_a_dialog_of_an_agent_reaches_the_template_in_the_form_that_servers_take(row):
    engine = ScriptedEngine(lambda text: "4", tokenizer())
    # As it is: `complete` would change it.
    await send(engine, row.messages)
    (sampled,) = engine.sampled
    assert list(sampled.prompt_ids) == render_chat(engine.tokenizer, parsed(row.sent))


CONDITIONS = {
    **dict.fromkeys(
        (row.name for row in REFUSED if "empty" in row.name),
        "m.role == 'assistant' and not m.content",
    ),
    "Qwen's template": "m.role == 'system' and not loop.first",
    "Mistral": "m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'tool'",
}


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_a_dialog_that_a_template_refuses_is_rendered_in_the_form_that_it_takes(row):
    made = make_tokenizer(["2+2? Be brief. So?"])
    condition = CONDITIONS.get(row.name, "m.role == 'system'")
    made.chat_template = (
        f"{{% for m in messages %}}{{% if {condition} %}}"
        f"{{{{ raise_exception({row.words!r}) }}}}"
        "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert render_chat(made, row.messages) == render_chat(made, row.sent)


def test_a_template_that_nothing_mends_refuses_the_dialog():
    made = make_tokenizer(["2+2?"])
    made.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(ConfigError, match="System role not supported"):
        render_chat(made, [BRIEF, said("user", "2+2?")])


async def test_calls_that_a_program_sends_without_arguments_are_taken():
    engine = ScriptedEngine(lambda text: "4", tokenizer())
    asked = said("user", "2+2?")
    for arguments in (None, {}, {"a": 2}, "{}"):
        call = made(arguments=arguments)
        dialog = [asked, said("assistant", None, tool_calls=[call]), result()]
        await send(engine, dialog)
    assert len(engine.sampled) == 4


async def send(engine, messages):
    """The messages as an agent's request to a gateway before the engine."""
    async with (
        Gateway(engine, engine.tokenizer).running() as gateway,
        OpenAIChatClient(address(gateway, OpenAIChatClient), "m") as agent,
    ):
        await agent.request("/chat/completions", {"model": "m", "messages": messages})


def parsed(messages):
    """The messages as templates take them, with arguments as objects."""
    return [with_parsed_arguments(message) for message in messages]


@pytest.mark.parametrize(
    ("ended", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
async def test_the_responses_dialect_says_why_a_reply_is_not_whole(ended, reason):
    async with (
        serving((200, reply(ended, content="4"))) as (url, _),
        OpenAIChatClient(url, "m") as client,
        Gateway(client).running() as gateway,
        OpenAIChatClient(address(gateway, OpenAIChatClient), "m") as agent,
    ):
        response = await agent.request("/responses", {"model": "m", "input": "2+2?"})
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": reason},
    )
