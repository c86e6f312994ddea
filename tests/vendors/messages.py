"""What servers of Anthropic's route send."""

import json

from ludic_gym.dialogs import UNREADABLE
from ludic_gym.errors import ClientError, PromptTooLong
from vendors.rows import CALL, Row, again, called


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


def message(*content, reason="end_turn"):
    """A response of Anthropic's route."""
    return {"type": "message", "role": "assistant", "content": list(content), "stop_reason": reason}


def text(value="4"):
    return {"type": "text", "text": value}


def use(input, **fields):
    return {"type": "tool_use", "id": "toolu_1", "name": "add", "input": input, **fields}


def refused(kind, reason):
    return {"type": "error", "error": {"type": kind, "message": reason}, "request_id": "req_1"}


MESSAGES = [
    Row("a text", message(text("2 and "), text("2")), text="2 and 2"),
    Row("no content", message()),
    Row("content null", {**message(reason="refusal"), "content": None}, finish="refusal"),
    Row("content that is a text", {**message(), "content": "4"}, text="4"),
    Row("a text of no characters", message(text(""))),
    Row(
        "a thought",
        message({"type": "thinking", "thinking": "2 and 2", "signature": "s"}, text()),
        text="4",
        reasoning="2 and 2",
    ),
    Row(
        "a thought that is hidden",
        message({"type": "redacted_thinking", "data": "x"}, text()),
        text="4",
    ),
    Row("a block of a new type", message({"type": "server_note", "note": "x"}, text()), text="4"),
    Row("a block that is a text", message("4"), error=ClientError),
    *(
        Row(f"the end {reason!r}", message(text(), reason=reason), text="4", finish=finish)
        for reason, finish in (
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("pause_turn", "stop"),
            (None, "stop"),
            ("some_new_one", "stop"),
            ("max_tokens", "length"),
            ("model_context_window_exceeded", "length"),
            ("refusal", "refusal"),
        )
    ),
    called("a call", message(use({"a": 2}), reason="tool_use"), CALL),
    called("a call with the end of a turn, as of LiteLLM", message(use({"a": 2})), CALL),
    called(
        "a call after a text",
        message(text("I add."), use({"a": 2}), reason="tool_use"),
        CALL,
        text="I add.",
    ),
    called("input null", message(use(None), reason="tool_use"), ("add", "{}")),
    called("input as a text", message(use('{"a": 2}'), reason="tool_use"), CALL),
    called("input that is no JSON", message(use('{"a'), reason="tool_use"), ("add", '{"a')),
    called("a call without id", message(use({"a": 2}, id=None), reason="tool_use"), CALL),
    called(
        "a call without a name",
        message(use({}, name=None, id="t"), reason="tool_use"),
        (UNREADABLE, json.dumps(use({}, name=None, id="t") | {"arguments": {}})),
    ),
    *(
        again(f"status {status}", refused(kind, "Overloaded"), status)
        for status, kind in (
            (429, "rate_limit_error"),
            (500, "api_error"),
            (529, "overloaded_error"),
        )
    ),
    again("an error with status 200", refused("overloaded_error", "Overloaded")),
    *(
        Row(f"status {status}", refused(kind, "No."), status, error=ClientError)
        for status, kind in (
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (404, "not_found_error"),
        )
    ),
    Row(
        "a prompt that is too long",
        refused("invalid_request_error", "prompt is too long: 140 tokens > 100 maximum"),
        400,
        error=PromptTooLong,
    ),
    Row(
        "a request that is too large",
        refused("request_too_large", "Request exceeds the maximum size"),
        413,
        error=PromptTooLong,
    ),
    Row(
        "a reply that the filter rejects",
        refused("invalid_request_error", "Output blocked by content filtering policy"),
        400,
        finish="content_filter",
    ),
    Row("a response without content", {"type": "message"}, error=ClientError),
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
    again(
        "a stream that fails in the middle",
        messages_stream([text(""), {"type": "text_delta", "text": "2"}], cut=True)
        + "event: error\ndata: "
        + json.dumps(refused("overloaded_error", "Overloaded"))
        + "\n\n",
    ),
    called(
        "a stream of a call whose input was cut off",
        messages_stream(
            [use({}), {"type": "input_json_delta", "partial_json": '{"a": '}], reason="max_tokens"
        ),
        ("add", '{"a": '),
        cut=True,
    ),
]
