"""Anthropic's messages format: requests from dialogs, completions from responses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.clients.chat_format import finish_reason, required_field, tool_calls
from ludic_gym.dialogs import sendable_dialog, sendable_names
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

Block = dict[str, Any]


def messages_body(
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    tools: Sequence[ToolSchema],
    thoughts: Mapping[str, Sequence[Block]],
) -> dict[str, Any]:
    """A request of the messages route, as the JSON object of its body.

    thoughts: signed blocks that go back with a reply, by the id of its first tool call.
    Raises ConfigError for sampling parameters that the format does not have.
    """
    if sampling.min_p:
        raise ConfigError(f"Anthropic's API has no min_p, got min_p={sampling.min_p}")
    turns = sendable_names(sendable_dialog(messages), tools)
    rules = []
    while turns and turns[0]["role"] == "system":
        rules.append(turns.pop(0)["content"] or "")
    fields: dict[str, Any] = {
        "model": model,
        "messages": joined_turns([(turn["role"], _blocks(turn, thoughts)) for turn in turns]),
        "system": "\n\n".join(rules),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_sequences": list(sampling.stop),
        "tools": [_tool(tool) for tool in tools],
    }
    # Without effect, and refused by some models.
    unused = {"system": "", "top_k": 0, "stop_sequences": [], "tools": []}
    return {name: value for name, value in fields.items() if unused.get(name) != value}


def messages_completion(response: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The response as a Completion; the rules are those of `plain_completion`.

    sampling: the parameters that were requested. Raises ClientError if the response is malformed.
    """
    blocks = content_blocks(response)
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    calls = tool_calls([{**use, "arguments": use.get("input")} for use in uses])
    return Completion(
        text="".join(required_field(b, "text", str) for b in blocks if b.get("type") == "text"),
        finish_reason=finish_reason(response.get("stop_reason"), has_calls=bool(calls)),
        sampling=sampling,
        tool_calls=calls,
        reasoning="\n\n".join(
            required_field(b, "thinking", str) for b in blocks if b.get("type") == "thinking"
        ),
    )


def content_blocks(response: Mapping[str, Any]) -> list[Block]:
    """The blocks of a response, of other vendors too: a text, or nothing in a refusal.

    Raises ClientError for content that is missing, or of another format.
    """
    if "content" in response and response["content"] is None:
        return []
    if isinstance(response.get("content"), str):
        return [{"type": "text", "text": response["content"]}]
    blocks = required_field(response, "content", list)
    for block in blocks:
        if not isinstance(block, dict):
            raise ClientError(f"a block of the response is {block!r}, not an object")
    return blocks


def joined_turns(turns: Sequence[tuple[str, list[Block]]]) -> list[dict[str, Any]]:
    """Messages whose roles alternate; a turn without content is left out.

    turns: role and content of each. The results of a reply's tool calls belong in one message.

    >>> text = {"type": "text", "text": "hi"}
    >>> [len(turn["content"]) for turn in joined_turns([("user", [text]), ("user", [text, text])])]
    [3]
    """
    joined: list[dict[str, Any]] = []
    for role, blocks in turns:
        role = "assistant" if role == "assistant" else "user"
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += blocks
        elif blocks:
            joined.append({"role": role, "content": list(blocks)})
    return joined


def _blocks(message: Message, thoughts: Mapping[str, Sequence[Block]]) -> list[Block]:
    """The content of a message."""
    if message["role"] == "tool":
        result = {"tool_use_id": message["tool_call_id"], "content": message["content"] or ""}
        return [{"type": "tool_result", **result}]
    # The API refuses a text without characters.
    texts = [{"type": "text", "text": message["content"]}] if message["content"] else []
    calls = message.get("tool_calls") or []
    uses = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in calls
    ]
    return [*(thoughts.get(calls[0]["id"], ()) if calls else ()), *texts, *uses]


def _tool(schema: ToolSchema) -> dict[str, Any]:
    """The tool of a chat API's schema; the format is otherwise the same."""
    function = dict(schema["function"])
    parameters = function.pop("parameters", {"type": "object"})
    return {**function, "input_schema": parameters}
