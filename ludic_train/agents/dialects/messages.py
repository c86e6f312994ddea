"""Anthropic's /v1/messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.dialects.fields import (
    Positive,
    Share,
    TopK,
    body_of,
    remembered,
    required,
    schema_of,
    stops,
    text_of,
    tool_of,
)
from ludic_train.agents.prompts import message_calls
from ludic_train.agents.types import Answer, Event, Json, Piece, Reply, Request

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
# Clients demand a signature of every thought, and send it back unread.
SIGNATURE = "ludic"


class _Body(msgspec.Struct, kw_only=True):
    messages: list[msgspec.Raw]
    model: str | None = None
    max_tokens: Positive | None = None
    system: Any = None
    tools: list[msgspec.Raw] | None = None
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
    body = body_of(data, _Body, ())
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
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None if body.top_k is None else max(body.top_k, 0),
        max_tokens=body.max_tokens,
        stop=stops(body.stop_sequences),
        stream=bool(body.stream),
        schema=schema_of((body.output_config or {}).get("format") or body.output_format),
    )


def whole(answer: Answer, logprobs: Sequence[Json | None]) -> Json:
    """The response; the dialect has no log-probs."""
    reply = answer.replies[0]
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE})
    if reply.content or not reply.calls:
        blocks.append({"type": "text", "text": reply.content})
    blocks += [{**_begun(call), "input": _input(call)} for call in reply.calls]
    head = _head(answer.id, answer.request, answer.prompt_tokens)
    usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.sampled_tokens}
    return {**head, "content": blocks, **_ended(reply), "usage": usage}


class Events:
    """Events of a stream. id: of the response."""

    def __init__(self, id: str, created: int, request: Request) -> None:
        self._id, self._request = id, request
        self._index = -1
        self._open = ""

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """The first event, an empty message with the number of tokens of the prompt."""
        message = {**_head(self._id, self._request, prompt_tokens), "content": []}
        ended = {"stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**message, **ended})

    def piece(self, piece: Piece, index: int = 0) -> Iterator[Event]:
        """Events of a piece: blocks of one kind that follow each other are one block."""
        if piece.call is not None:
            yield from self._close()
            yield from self._begin("call", {**_begun(piece.call), "input": {}})
            part = {"type": "input_json_delta", "partial_json": json.dumps(_input(piece.call))}
            yield _event("content_block_delta", index=self._index, delta=part)
            yield from self._close()
            return
        if self._open != piece.kind:
            yield from self._close()
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            block = {"type": "text", "text": ""} if piece.kind == "text" else empty
            yield from self._begin(piece.kind, block)
        delta = {"type": "text_delta", "text": piece.text}
        if piece.kind == "reasoning":
            delta = {"type": "thinking_delta", "thinking": piece.text}
        yield _event("content_block_delta", index=self._index, delta=delta)

    def end(self, answer: Answer, logprobs: Sequence[Json | None]) -> Iterator[Event]:
        """The last events; a reply without any text is one empty block, as the format demands."""
        if self._index < 0:
            yield from self._begin("text", {"type": "text", "text": ""})
        yield from self._close()
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.sampled_tokens}
        yield _event("message_delta", delta=_ended(answer.replies[0]), usage=usage)
        yield _event("message_stop")

    def _begin(self, kind: str, block: Json) -> Iterator[Event]:
        self._index += 1
        self._open = kind
        yield _event("content_block_start", index=self._index, content_block=block)

    def _close(self) -> Iterator[Event]:
        if self._open == "reasoning":
            signature = {"type": "signature_delta", "signature": SIGNATURE}
            yield _event("content_block_delta", index=self._index, delta=signature)
        if self._open:
            yield _event("content_block_stop", index=self._index)
        self._open = ""


def _event(kind: str, **fields: Any) -> Event:  # noqa: ANN401 - JSON
    return kind, {"type": kind, **fields}


def _head(id: str, request: Request, prompt_tokens: int) -> Json:
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "usage": {"input_tokens": prompt_tokens, "output_tokens": 0},
    }


def _ended(reply: Reply) -> Json:
    """The reason for the end, and the string of the request that ended the text."""
    if reply.stop and not reply.calls:
        return {"stop_reason": "stop_sequence", "stop_sequence": reply.stop}
    return {"stop_reason": STOP_REASONS[reply.finish_reason], "stop_sequence": None}


def _begun(call: ToolCall) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _input(call: ToolCall) -> Any:  # noqa: ANN401 - JSON
    """Arguments as an object, which the dialect demands; any other text under a name of its own."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


@remembered
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


@remembered
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
