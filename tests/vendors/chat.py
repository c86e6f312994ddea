"""What servers of the chat route send that is a reply."""

import json

from ludic_gym.dialogs import UNREADABLE
from ludic_gym.errors import ClientError
from vendors.rows import ADD, CALL, TAGGED, Row, again, called, calling, ended, failed, reply

CALLS = [
    called("a call", calling(ADD), CALL),
    called("two calls", calling(ADD, {"name": "now", "arguments": "{}"}), CALL, ("now", "{}")),
    called("a call with the end of a text", calling(ADD, reason="stop"), CALL),
    called("a call with no end", calling(ADD, reason=None), CALL),
    called("a call and a text", calling(ADD, content="I add."), CALL, text="I add."),
    called("a call that was cut off", calling({"name": "add", "arguments": '{"a'}), ("add", '{"a')),
    called(
        "a call that was cut off, of a server that hides it",
        calling({"name": "add", "arguments": '{"a'}) | {"usage": {"completion_tokens": 256}},
        ("add", '{"a'),
        cut=True,
    ),
    called("arguments null", calling({"name": "now", "arguments": None}), ("now", "{}")),
    called("no arguments", calling({"name": "now"}), ("now", "{}")),
    called("arguments of no characters", calling({"name": "now", "arguments": ""}), ("now", "")),
    called("arguments as an object", calling({"name": "add", "arguments": {"a": 2}}), CALL),
    called(
        "arguments that are JSON in JSON",
        calling({"name": "add", "arguments": json.dumps('{"a": 2}')}),
        CALL,
    ),
    called("arguments twice", calling({"name": "add", "arguments": '{"a": 2}' * 2}), CALL),
    called("arguments as a list", calling({"name": "add", "arguments": "[2]"}), ("add", "[2]")),
    called("arguments of no JSON", calling({"name": "add", "arguments": "a=2"}), ("add", "a=2")),
    called("a call without id", reply("tool_calls", tool_calls=[{"function": ADD}]), CALL),
    called("an id null", reply("tool_calls", tool_calls=[{"id": None, "function": ADD}]), CALL),
    called(
        "two calls of one id",
        reply("tool_calls", tool_calls=[{"id": "c", "function": ADD}] * 2),
        CALL,
        CALL,
    ),
    called("a call without a function", reply(tool_calls=[{"id": "c", **ADD}]), CALL),
    called("one call that is no list", reply(tool_calls={"id": "c", "function": ADD}), CALL),
    called("the field of older servers", reply("function_call", function_call=ADD), CALL),
    called(
        "a call without a name",
        reply(tool_calls=[{"function": {"name": None, "arguments": "{}"}}]),
        (UNREADABLE, '{"function": {"name": null, "arguments": "{}"}}'),
    ),
    called("a call that is a text", reply(tool_calls=["add(2)"]), (UNREADABLE, "add(2)")),
    called(
        "a call that the filter of Gemini rejects",
        reply("function_call_filter: MALFORMED_FUNCTION_CALL", content="print(add(a=2))"),
        (UNREADABLE, "print(add(a=2))"),
    ),
    called(
        "a call that Gemini cannot read, without its text",
        reply("MALFORMED_FUNCTION_CALL"),
        (UNREADABLE, ""),
    ),
    called(
        "a call that Groq cannot read",
        failed("Failed to call a function.", code="tool_use_failed", failed_generation="add(a=2)"),
        (UNREADABLE, "add(a=2)"),
        status=400,
    ),
    called(
        "a call that Ollama cannot read",
        {"error": "error parsing tool call: raw='{\"a\"', err=unexpected end of JSON input"},
        (UNREADABLE, "error parsing tool call: raw='{\"a\"', err=unexpected end of JSON input"),
        status=500,
    ),
    called(
        "a call that llama.cpp cannot read",
        failed("Failed to parse input at pos 3: <tool_call>", code=500, type="server_error"),
        (UNREADABLE, "Failed to parse input at pos 3: <tool_call>"),
        status=500,
    ),
    Row("no calls but a list of none", reply(content="4", tool_calls=[]), text="4"),
    Row("no calls but null", reply(content="4", tool_calls=None), text="4"),
    Row(
        "a call in the text of a server without a parser",
        reply(content=TAGGED),
        text=TAGGED,
        calls=[CALL],
    ),
    *(
        Row(
            f"a call in a thought, {begin}",
            reply(content=f"{begin}{TAGGED}{end}4"),
            text=f"{begin}{TAGGED}{end}4",
        )
        for begin, end in (
            ("<think>", "</think>"),
            ("<thinking>", "</thinking>"),
            ("<thought>", "</thought>"),
            ("<reasoning>", "</reasoning>"),
            ("[THINK]", "[/THINK]"),
            ("", "</think>"),
        )
    ),
    Row(
        "a call in a thought that never ends",
        reply("length", content=f"<think>{TAGGED}"),
        text=f"<think>{TAGGED}",
        finish="length",
    ),
    Row(
        "a call in a thought apart",
        reply(content="4", reasoning_content=TAGGED),
        text="4",
        reasoning=TAGGED,
    ),
]
TEXTS = [
    Row("content null", reply()),
    Row("content of no characters", reply(content="")),
    Row("content of no parts", reply(content=[])),
    Row(
        "content in parts",
        reply(content=[{"type": "text", "text": "2 "}, {"type": "text", "text": "and 2"}]),
        text="2 and 2",
    ),
    Row("a part that is null", reply(content=[None]), error=ClientError),
    Row(
        "a message null, as of a filter",
        {"choices": [{"message": None, "finish_reason": "content_filter"}]},
        finish="content_filter",
    ),
    Row("no content at all", {"choices": [{"message": {"role": "assistant"}}]}),
    Row("a refusal in its own field", reply(refusal="I cannot."), text="I cannot."),
    Row(
        "reasoning_content",
        reply(content="4", reasoning_content="2 and 2"),
        text="4",
        reasoning="2 and 2",
    ),
    Row("reasoning", reply(content="4", reasoning="2 and 2"), text="4", reasoning="2 and 2"),
    Row("reasoning null", reply(content="4", reasoning=None), text="4"),
    Row(
        "a thought and no text",
        reply("length", reasoning_content="2 and"),
        reasoning="2 and",
        finish="length",
    ),
    Row(
        "a thought in a part, as of Mistral",
        reply(
            content=[
                {"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2"}]},
                {"type": "text", "text": "4"},
            ]
        ),
        text="4",
        reasoning="2 and 2",
    ),
    *(
        ended(reason, "stop")
        for reason in (
            "stop",
            None,
            "eos",
            "eos_token",
            "end_turn",
            "stop_sequence",
            "pause_turn",
            "a_new_one",
            {"type": "stop"},
        )
    ),
    *(
        ended(reason, "length")
        for reason in ("length", "model_length", "max_tokens", "model_context_window_exceeded")
    ),
    *(
        ended(reason, "content_filter")
        for reason in (
            "content_filter",
            "content_filter: SAFETY",
            "sensitive",
            "PROHIBITED_CONTENT",
        )
    ),
    ended("refusal", "refusal"),
    *(
        again(f"the end {reason!r}, which the server made", reply(reason, content="5"))
        for reason in (
            "abort",
            "error",
            "cancelled",
            "network_error",
            "insufficient_system_resource",
        )
    ),
]
