"""What servers of the chat route send as events."""

import json

from ludic_gym.dialogs import UNREADABLE
from vendors.rows import Row, called


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
STREAMS = [
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
    called(
        "a stream whose call cannot be read",
        sse(delta(content="add("), delta("function_call_filter: MALFORMED_FUNCTION_CALL")),
        (UNREADABLE, "add("),
    ),
]
