"""Anthropic's /v1/messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from ludic_gym.dialogs import message_calls
from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.dialects.fields import (
    Positive,
    Share,
    TopK,
    body_of,
    require_text_format,
    required,
    sampling_of,
    text_of,
    tool_of,
)
from ludic_train.agents.types import Event, Json, Request, Response

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
}
# Clients demand a signature of every thought, and send it back unread.
SIGNATURE = "ludic"


class _Body(msgspec.Struct, kw_only=True):
    messages: list[Any]
    model: str | None = None
    max_tokens: Positive | None = None
    system: Any = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    # The format's own range, half of OpenAI's.
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    output_config: dict[str, Any] | None = None
    output_format: Any = None


def read(data: bytes) -> Request:
    """The request of a body. Raises ConfigError for one that cannot be followed."""
    body = body_of(data, _Body)
    require_text_format((body.output_config or {}).get("format") or body.output_format)
    if not body.messages:
        raise ConfigError("messages=[]: a dialog has one message or more")
    system = text_of(body.system)
    begin: list[Message] = [{"role": "system", "content": system}] if system else []
    tools = tuple(_tool(tool) for tool in body.tools or ())
    choice = body.tool_choice or {}
    return Request(
        model=body.model or "",
        messages=(*begin, *(message for raw in body.messages for message in _messages(raw))),
        tools=tools,
        tool_choice=required(_choice(choice), tools),
        parallel=not choice.get("disable_parallel_tool_use"),
        sampling=sampling_of(
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            stop=body.stop_sequences,
        ),
        max_tokens=body.max_tokens,
        stream=bool(body.stream),
    )


def whole(response: Response, logprobs: Json | None) -> Json:
    """The response as JSON; the dialect has no log-probs."""
    return {
        **_head(response),
        "content": _blocks(response),
        **_ended(response),
        "usage": _usage(response),
    }


def events(response: Response, logprobs: Json | None) -> Iterator[Event]:
    """The response as events, each block of its content by a start, a delta and a stop."""
    ended = {"stop_reason": None, "stop_sequence": None}
    usage = {"input_tokens": response.prompt_tokens, "output_tokens": 0}
    message = {**_head(response), "content": [], **ended, "usage": usage}
    yield _event("message_start", message=message)
    for index, block in enumerate(_blocks(response)):
        match block["type"]:
            case "thinking":
                begun = {**block, "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": SIGNATURE},
                ]
            case "text":
                begun = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": block["text"]}]
            case _:
                begun = {**block, "input": {}}
                text = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": text}]
        yield _event("content_block_start", index=index, content_block=begun)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=_ended(response), usage=_usage(response))
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> Event:  # noqa: ANN401 - JSON
    return kind, {"type": kind, **fields}


def _head(response: Response) -> Json:
    return {
        "id": f"msg_{response.id}",
        "type": "message",
        "role": "assistant",
        "model": response.request.model,
    }


def _usage(response: Response) -> Json:
    return {"input_tokens": response.prompt_tokens, "output_tokens": response.sampled_tokens}


def _ended(response: Response) -> Json:
    """The reason for the end, and the string of the request that ended the text."""
    if response.stop and not response.calls:
        return {"stop_reason": "stop_sequence", "stop_sequence": response.stop}
    return {"stop_reason": STOP_REASONS[response.finish_reason], "stop_sequence": None}


def _blocks(response: Response) -> list[Json]:
    """Thought, text and calls; a reply without any of them is one empty text."""
    blocks: list[Json] = []
    if response.reasoning:
        thought = response.reasoning
        blocks.append({"type": "thinking", "thinking": thought, "signature": SIGNATURE})
    if response.content or not response.calls:
        blocks.append({"type": "text", "text": response.content})
    for call in response.calls:
        named = {"id": call.id, "name": call.name, "input": _input(call)}
        blocks.append({"type": "tool_use", **named})
    return blocks


def _input(call: ToolCall) -> Any:  # noqa: ANN401 - JSON
    """Arguments as an object, which the dialect demands; any other text under a name of its own."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def _messages(raw: object) -> list[Message]:
    """The messages of one in Anthropic's format: results of tools are messages of their own."""
    if not isinstance(raw, dict):
        raise ConfigError(f"a message is an object with a role and content, got {raw!r:.200}")
    content, role = raw.get("content"), raw.get("role")
    if role not in ("system", "user", "assistant"):
        raise ConfigError(f"a message has the role {role!r:.100}")
    if role == "system" or not isinstance(content, list):
        return [cast(Message, {"role": role, "content": text_of(content)})]
    if role == "assistant":
        return [_reply(content)]
    results: list[Message] = []
    texts = []
    for block in content:
        match block:
            case {"type": "tool_result", "tool_use_id": str(id), **rest}:
                text = text_of(rest.get("content"))
                results.append({"role": "tool", "content": text, "tool_call_id": id})
            case _:
                texts.append(block)
    return [*results, {"role": "user", "content": text_of(texts)}] if texts else results


def _reply(blocks: Sequence[object]) -> Message:
    """The message of the assistant: texts together, calls in their order, thoughts if any.

    Redacted thoughts are of another vendor's model, and can only be left out.
    """
    texts, calls, thoughts = [], [], []
    for block in blocks:
        match block:
            case {"type": "tool_use", "id": str(id), "name": str(name), "input": value}:
                calls.append(ToolCall(id=id, name=name, arguments=_arguments(value)))
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
            case {"type": "redacted_thinking"}:
                continue
            case _:
                texts.append(block)
    message: dict[str, Any] = {"role": "assistant", "content": text_of(texts)}
    if calls:
        message["tool_calls"] = message_calls(calls)
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    return cast(Message, message)


def _arguments(value: object) -> str:
    """The text of the arguments, where `_input` had to wrap it."""
    text = value.get("arguments") if isinstance(value, dict) and len(value) == 1 else None
    # Text that begins as JSON was an object with this one key when it was sampled.
    if isinstance(text, str) and not text.lstrip().startswith("{"):
        return text
    return json.dumps(value)


def _tool(raw: object) -> ToolSchema:
    match raw:
        case {"type": str(kind)} if kind != "custom":
            raise ConfigError(f"tools of type {kind!r:.100} run at the vendor: offer functions")
        case {"name": name, "input_schema": schema, **rest}:
            fields = {"name": name, "parameters": schema}
            return tool_of({**fields, "description": rest.get("description")})
    raise ConfigError(f"a tool has a name and an input_schema, got {raw!r:.200}")


def _choice(raw: Mapping[str, Any]) -> str:
    match raw:
        case {"type": "tool", "name": str(name)}:
            return name
        case {"type": "any"}:
            return "required"
        case {"type": "none"}:
            return "none"
        case {"type": "auto"}:
            return "auto"
    if raw:
        raise ConfigError(f"tool_choice is of type auto, any, tool or none, got {raw!r:.200}")
    return "auto"
