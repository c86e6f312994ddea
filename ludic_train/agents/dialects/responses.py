"""OpenAI's /v1/responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.dialects.fields import (
    Positive,
    Share,
    Temperature,
    body_of,
    choice_of,
    remembered,
    required,
    schema_of,
    text_of,
    tool_of,
)
from ludic_train.agents.prompts import message_calls
from ludic_train.agents.types import Answer, Event, Json, Piece, Request

REFUSED = ("background", "conversation", "prompt", "top_logprobs")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class _Body(msgspec.Struct, kw_only=True):
    input: str | list[Any] = ""
    instructions: str | None = None
    model: str | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    max_output_tokens: Positive | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None


def read(data: bytes) -> Request:
    """The request of a body. Raises ConfigError for one that cannot be followed."""
    body = body_of(data, _Body, REFUSED)
    begin: list[Message] = []
    if body.instructions:
        begin = [{"role": "system", "content": body.instructions}]
    items = body.input if isinstance(body.input, list) else [_user(body.input)]
    messages = _messages(items)
    if not messages and not body.previous_response_id:
        raise ConfigError(f"input={body.input!r} has no message")
    tools = tuple(_tool(tool) for tool in body.tools or ())
    return Request(
        model=body.model or "",
        messages=(*begin, *messages),
        tools=tools,
        tool_choice=required(choice_of(body.tool_choice), tools),
        parallel=body.parallel_tool_calls is not False,
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=body.max_output_tokens,
        stream=bool(body.stream),
        schema=schema_of((body.text or {}).get("format")),
        previous=(body.previous_response_id or "").removeprefix("resp_"),
    )


def whole(answer: Answer, logprobs: Sequence[Json | None]) -> Json:
    """The response."""
    reply = answer.replies[0]
    items: list[Json] = []
    if reply.reasoning:
        items.append(_thought(f"rs_{answer.id}", reply.reasoning))
    if reply.content or not reply.calls:
        items.append(_message_item(f"msg_{answer.id}", reply.content, "completed"))
    items += [_call_item(call, "completed", call.arguments) for call in reply.calls]
    usage = {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.sampled_tokens,
    }
    is_cut = reply.completion.finish_reason == "length"
    status = "incomplete" if is_cut else "completed"
    head = _head(answer.id, answer.created, answer.request, status)
    details = {"reason": "max_output_tokens"} if is_cut else None
    return {**head, "output": items, "usage": usage, "incomplete_details": details}


class Events:
    """Events of a stream. id, created: of the response."""

    def __init__(self, id: str, created: int, request: Request) -> None:
        self._id, self._head = id, _head(id, created, request, "in_progress")
        self._number = self._items = -1
        self._open, self._text = "", ""

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """The first events, of a response without items."""
        response = {**self._head, "output": [], "usage": None, "incomplete_details": None}
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def piece(self, piece: Piece, index: int = 0) -> Iterator[Event]:
        """Events of a piece: texts that follow each other are one item."""
        if piece.call is not None:
            yield from self._close()
            yield from self._call(piece.call)
            return
        if self._open != piece.kind:
            yield from self._close()
            yield from self._begin(piece.kind)
        self._text += piece.text
        if piece.kind == "text":
            at = {"item_id": f"msg_{self._id}", "output_index": self._items, "content_index": 0}
            yield self._event("response.output_text.delta", **at, delta=piece.text, logprobs=[])

    def end(self, answer: Answer, logprobs: Sequence[Json | None]) -> Iterator[Event]:
        """The last events; the last one has the whole response, which SDKs return."""
        if self._items < 0:
            yield from self._begin("text")
        yield from self._close()
        response = whole(answer, logprobs)
        kind = "incomplete" if response["status"] == "incomplete" else "completed"
        yield self._event(f"response.{kind}", response=response)

    def _begin(self, kind: str) -> Iterator[Event]:
        self._items += 1
        self._open, self._text = kind, ""
        item = _thought(f"rs_{self._id}", "")
        if kind == "text":
            item = {**_message_item(f"msg_{self._id}", "", "in_progress"), "content": []}
        yield self._event("response.output_item.added", output_index=self._items, item=item)
        if kind == "text":
            yield self._event("response.content_part.added", **self._at(), part=_part(""))

    def _close(self) -> Iterator[Event]:
        if self._open == "text":
            at = self._at()
            yield self._event("response.output_text.done", **at, text=self._text, logprobs=[])
            yield self._event("response.content_part.done", **at, part=_part(self._text))
        if self._open:
            item = _thought(f"rs_{self._id}", self._text.strip())
            if self._open == "text":
                item = _message_item(f"msg_{self._id}", self._text, "completed")
            yield self._event("response.output_item.done", output_index=self._items, item=item)
        self._open = ""

    def _call(self, call: ToolCall) -> Iterator[Event]:
        self._items += 1
        at = {"output_index": self._items}
        begun = _call_item(call, "in_progress", "")
        yield self._event("response.output_item.added", **at, item=begun)
        named = {**at, "item_id": begun["id"]}
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **named, delta=call.arguments)
        yield self._event(f"{kind}.done", **named, arguments=call.arguments, name=call.name)
        item = _call_item(call, "completed", call.arguments)
        yield self._event("response.output_item.done", **at, item=item)

    def _at(self) -> Json:
        return {"item_id": f"msg_{self._id}", "output_index": self._items, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> Event:  # noqa: ANN401 - JSON
        self._number += 1
        return kind, {"type": kind, "sequence_number": self._number, **fields}


def _head(id: str, created: int, request: Request, status: str) -> Json:
    system = [m["content"] for m in request.messages[:1] if m["role"] == "system"]
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "instructions": system[0] if system else None,
        "model": request.model,
        "parallel_tool_calls": request.parallel,
        "previous_response_id": f"resp_{request.previous}" if request.previous else None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tool_choice": request.tool_choice
        if request.tool_choice in ("none", "auto")
        else "required",
        "tools": [{"type": "function", "strict": False, **t["function"]} for t in request.tools],
        "metadata": {},
    }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message_item(id: str, text: str, status: str) -> Json:
    part = [_part(text)]
    return {"id": id, "type": "message", "role": "assistant", "status": status, "content": part}


def _thought(id: str, text: str) -> Json:
    """A reasoning item; without text while it is being written."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": id, "type": "reasoning", "summary": summary}


def _call_item(call: ToolCall, status: str, arguments: str) -> Json:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    }


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _messages(items: Sequence[Any]) -> list[Message]:
    """Messages of the items; those of one reply together, as one message."""
    found: list[dict[str, Any]] = []
    for item in items:
        if not isinstance(item, dict):
            raise ConfigError(f"an item of input is an object, got {item!r:.200}")
        message = _item(item)
        is_reply = message["role"] == "assistant"
        # A reply of this dialect is several items: a thought, a text, and each call.
        if is_reply and found and found[-1]["role"] == "assistant":
            found[-1] = _together(found[-1], message)
        else:
            found.append(message)
    return cast(list[Message], found)


def _together(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two items of one reply as one message, with the calls of both."""
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    both = {**first, **second, "content": first["content"] + second["content"]}
    return {**both, "tool_calls": calls} if calls else both


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    """The message of an item. Raises ConfigError for one that cannot be read, such as an image."""
    match item:
        case {
            "type": "function_call",
            "call_id": str(id),
            "name": str(name),
            "arguments": str(text),
        }:
            calls = message_calls([ToolCall(id=id, name=name, arguments=text)])
            return {"role": "assistant", "content": "", "tool_calls": calls}
        case {"type": "function_call_output", "call_id": str(id), "output": output}:
            return {"role": "tool", "content": text_of(output, TEXTS), "tool_call_id": id}
        case {"type": "reasoning", **rest}:
            thought = text_of(rest.get("summary"), TEXTS)
            return {"role": "assistant", "content": "", "reasoning_content": thought}
        case {"role": "developer" | "system", "content": content}:
            return {"role": "system", "content": text_of(content, TEXTS)}
        case {"role": "user" | "assistant" as role, "content": content}:
            return {"role": role, "content": text_of(content, TEXTS)}
    raise ConfigError(f"an item of input cannot be read: {item!r:.200}")


@remembered
def _tool(raw: object) -> ToolSchema:
    match raw:
        case {"type": "function", **function}:
            return tool_of(function)
    raise ConfigError(f"a tool is of type function, got {raw!r:.200}")
