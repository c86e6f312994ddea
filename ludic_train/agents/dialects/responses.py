"""OpenAI's /v1/responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, cast

import msgspec

from ludic_gym.dialogs import message_calls
from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.dialects.fields import (
    Positive,
    Share,
    Temperature,
    body_of,
    choice_of,
    require_text_format,
    required,
    sampling_of,
    text_of,
    tool_of,
)
from ludic_train.agents.types import Event, Json, Request, Response

# The dialect's reasons for a response that is not whole.
CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class _Body(msgspec.Struct, kw_only=True):
    input: str | list[Any] = ""
    instructions: str | None = None
    model: str | None = None
    tools: list[Any] | None = None
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
    body = body_of(data, _Body)
    require_text_format((body.text or {}).get("format"))
    begin: list[Message] = []
    if body.instructions:
        begin = [{"role": "system", "content": body.instructions}]
    text = body.input
    items = text if isinstance(text, list) else [{"role": "user", "content": text}]
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
        sampling=sampling_of(temperature=body.temperature, top_p=body.top_p),
        max_tokens=body.max_output_tokens,
        stream=bool(body.stream),
        previous=(body.previous_response_id or "").removeprefix("resp_"),
    )


def whole(response: Response, logprobs: Json | None) -> Json:
    """The response as JSON; the dialect's log-probs are not offered."""
    cut = CUT.get(response.completion.finish_reason)
    usage = {
        "input_tokens": response.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": response.sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": response.prompt_tokens + response.sampled_tokens,
    }
    return {
        **_head(response, "incomplete" if cut else "completed"),
        "output": _items(response),
        "usage": usage,
        "incomplete_details": {"reason": cut} if cut else None,
    }


def events(response: Response, logprobs: Json | None) -> Iterator[Event]:
    """The response as events; the last one has the whole response, which SDKs return."""
    numbers = count()

    def event(kind: str, **fields: Any) -> Event:  # noqa: ANN401 - JSON
        return kind, {"type": kind, "sequence_number": next(numbers), **fields}

    begun = _head(response, "in_progress")
    begun |= {"output": [], "usage": None, "incomplete_details": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(_items(response)):
        at = {"output_index": index}
        named = {**at, "item_id": item["id"]}
        match item["type"]:
            case "message":
                empty = {**item, "status": "in_progress", "content": []}
                yield event("response.output_item.added", **at, item=empty)
                named["content_index"] = 0
                (part,), kind = item["content"], "response.output_text"
                yield event("response.content_part.added", **named, part={**part, "text": ""})
                yield event(f"{kind}.delta", **named, delta=part["text"], logprobs=[])
                yield event(f"{kind}.done", **named, text=part["text"], logprobs=[])
                yield event("response.content_part.done", **named, part=part)
            case "function_call":
                empty = {**item, "status": "in_progress", "arguments": ""}
                yield event("response.output_item.added", **at, item=empty)
                kind, text = "response.function_call_arguments", item["arguments"]
                yield event(f"{kind}.delta", **named, delta=text)
                yield event(f"{kind}.done", **named, arguments=text, name=item["name"])
            case _:
                yield event("response.output_item.added", **at, item={**item, "summary": []})
        yield event("response.output_item.done", **at, item=item)
    response_json = whole(response, logprobs)
    yield event(f"response.{response_json['status']}", response=response_json)


def _head(response: Response, status: str) -> Json:
    request = response.request
    system = [m["content"] for m in request.messages[:1] if m["role"] == "system"]
    choice = request.tool_choice
    return {
        "id": f"resp_{response.id}",
        "object": "response",
        "created_at": response.created,
        "status": status,
        "error": None,
        "instructions": system[0] if system else None,
        "model": request.model,
        "parallel_tool_calls": request.parallel,
        "previous_response_id": f"resp_{request.previous}" if request.previous else None,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "tool_choice": choice if choice in ("none", "auto") else "required",
        "tools": [{"type": "function", "strict": False, **t["function"]} for t in request.tools],
        "metadata": {},
    }


def _items(response: Response) -> list[Json]:
    """Thought, text and calls; a reply without any of them is one empty text."""
    items: list[Json] = []
    done = {"status": "completed"}
    if response.reasoning:
        summary = [{"type": "summary_text", "text": response.reasoning}]
        items.append({"id": f"rs_{response.id}", "type": "reasoning", "summary": summary})
    if response.content or not response.calls:
        text = {"type": "output_text", "text": response.content, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{response.id}", "type": "message", "role": "assistant", **done}
        items.append({**message, "content": [text]})
    for call in response.calls:
        named = {"id": f"fc_{call.id}", "type": "function_call", "call_id": call.id, **done}
        items.append({**named, "name": call.name, "arguments": call.arguments})
    return items


def _messages(items: Sequence[Any]) -> list[Message]:
    """Messages of the items; those of one reply together, as one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        if not isinstance(item, dict):
            raise ConfigError(f"an item of input is an object, got {item!r:.200}")
        message = _item(item)
        is_reply = message["role"] == "assistant"
        # A reply of this dialect is several items: a thought, a text, and each call.
        if is_reply and messages and messages[-1]["role"] == "assistant":
            messages[-1] = _together(messages[-1], message)
        else:
            messages.append(message)
    return cast(list[Message], messages)


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


def _tool(raw: object) -> ToolSchema:
    match raw:
        case {"type": "function", **function}:
            return tool_of(function)
    raise ConfigError(f"a tool is of type function, got {raw!r:.200}")
