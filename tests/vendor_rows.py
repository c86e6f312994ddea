"""What vendors send, one row each: a response, and what a client has to make of it."""

import json
from dataclasses import dataclass, field
from typing import Any

from ludic_gym.errors import LudicError


@dataclass(frozen=True)
class Row:
    """sent: an object, or the text of a response that is no JSON object.

    calls: name and arguments of each. error: of a response that is no reply. tries: requests until
    the client has its result, where the server sends `sent` but once and then `good`.
    """

    name: str
    sent: Any
    status: int = 200
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = "stop"
    error: type[LudicError] | None = None
    tries: int = 1


def sse(*events, done=True):
    """A stream of chat completions, as servers of OpenAI's API send it."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def delta(reason=None, **fields):
    return {"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def fragment(index, arguments, id=None, name=None):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return (
        {"function": function}
        | ({"id": id} if id else {})
        | ({} if index is None else {"index": index})
    )


USAGE = {"id": "1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
CHAT = [
    Row(
        "a stream, with its usage last",
        sse(
            delta(role="assistant", content=""),
            delta(content="2 and "),
            delta(content="2"),
            delta("stop"),
            USAGE,
        ),
        text="2 and 2",
    ),
    Row(
        "a stream that begins with comments",
        ": OPENROUTER PROCESSING\n\n" + sse(delta(content="4"), delta("stop")),
        text="4",
    ),
    Row(
        "a stream with line ends of HTTP",
        sse(delta(content="4"), delta("stop")).replace("\n", "\r\n"),
        text="4",
    ),
    Row(
        "a stream with a line separator in a text",
        sse(delta(content="a"), delta("stop")).replace('"a"', '"a\u2028b"'),
        text="a\u2028b",
    ),
    Row("a stream that never says why it ends", sse(delta(content="4")), text="4"),
    Row(
        "a stream whose thought comes first",
        sse(
            delta(reasoning_content="2 and"),
            delta(reasoning_content=" 2"),
            delta(content="4"),
            delta("stop"),
        ),
        text="4",
        reasoning="2 and 2",
    ),
    Row(
        "a stream whose thought is a part of the content, as of Mistral",
        sse(
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "2 "}]}]),
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "and 2"}]}]),
            delta(content="4"),
            delta("stop"),
        ),
        text="4",
        reasoning="2 and 2",
    ),
    Row(
        "a stream of two calls in pieces",
        sse(
            delta(tool_calls=[fragment(0, "", "a", "add")]),
            delta(tool_calls=[fragment(0, '{"a"')]),
            delta(tool_calls=[fragment(1, "", "b", "now")]),
            delta(tool_calls=[fragment(0, ": 2}"), fragment(1, "{}")]),
            delta("tool_calls"),
        ),
        calls=[("add", '{"a": 2}'), ("now", "{}")],
        finish="tool_calls",
    ),
    Row(
        "a stream of two calls that are both number 0, as of Gemini",
        sse(
            delta(tool_calls=[fragment(0, "{}", "a", "add"), fragment(0, "{}", "b", "now")]),
            delta("tool_calls"),
        ),
        calls=[("add", "{}"), ("now", "{}")],
        finish="tool_calls",
    ),
    Row(
        "a stream of two calls without numbers and ids",
        sse(
            delta(tool_calls=[fragment(None, "{}", name="add"), fragment(None, "{", name="now")]),
            delta(tool_calls=[fragment(None, "}")]),
            delta("tool_calls"),
        ),
        calls=[("add", "{}"), ("now", "{}")],
        finish="tool_calls",
    ),
    Row(
        "a stream that repeats id and name with every piece",
        sse(
            delta(tool_calls=[fragment(0, "{", "a", "add")]),
            delta(tool_calls=[fragment(0, "}", "a", "add")]),
            delta("tool_calls"),
        ),
        calls=[("add", "{}")],
        finish="tool_calls",
    ),
    Row(
        "a stream that is cut",
        sse(delta(content="2 and"), done=False),
        text="good",
        tries=2,
    ),
    Row(
        "a stream that fails in the middle",
        sse(delta(content="2 and"), {"error": {"code": 502, "message": "no server"}}),
        text="good",
        tries=2,
    ),
]


def event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def messages_stream(*blocks, reason="end_turn", cut=False):
    """A stream of Anthropic's messages. blocks: the begun block, and the deltas of each."""
    text = event("message_start", message={"role": "assistant", "content": [], "usage": {}})
    for index, (block, *deltas) in enumerate(blocks):
        text += event("content_block_start", index=index, content_block=block)
        text += event("ping")
        for each in deltas:
            text += event("content_block_delta", index=index, delta=each)
        text += event("content_block_stop", index=index)
    if cut:
        return text
    ended = {"stop_reason": reason, "stop_sequence": None}
    text += event("message_delta", delta=ended, usage={"output_tokens": 5})
    return text + event("message_stop")


MESSAGES = [
    Row(
        "a stream of a thought and a text",
        messages_stream(
            [
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "2 and"},
                {"type": "thinking_delta", "thinking": " 2"},
                {"type": "signature_delta", "signature": "c2ln"},
            ],
            [{"type": "text", "text": ""}, {"type": "text_delta", "text": "4"}],
        ),
        text="4",
        reasoning="2 and 2",
    ),
    Row(
        "a stream of a call",
        messages_stream(
            [
                {"type": "tool_use", "id": "a", "name": "add", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"a": '},
                {"type": "input_json_delta", "partial_json": "2}"},
            ],
            reason="tool_use",
        ),
        calls=[("add", '{"a": 2}')],
        finish="tool_calls",
    ),
    Row(
        "a stream of a call without arguments",
        messages_stream(
            [{"type": "tool_use", "id": "a", "name": "now", "input": {}}], reason="tool_use"
        ),
        calls=[("now", "{}")],
        finish="tool_calls",
    ),
    Row(
        "a stream that is cut",
        messages_stream([{"type": "text", "text": "4"}], cut=True),
        text="good",
        tries=2,
    ),
]
