"""OpenAI's /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ludic_gym.clients.chat_format import arguments_text
from ludic_gym.dialogs import message_calls
from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.dialects.fields import (
    Positive,
    SamplingBody,
    body_of,
    choice_of,
    require_text_format,
    required,
    text_of,
    tool_of,
)
from ludic_train.agents.types import Event, Json, Request, Response

ROLES = {"developer": "system", "function": "tool"}


class _Body(SamplingBody, kw_only=True):
    messages: list[Any]
    model: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    response_format: Any = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    return_token_ids: bool | None = None


def read(data: bytes) -> Request:
    """The request of a body. Raises ConfigError for one that cannot be followed."""
    body = body_of(data, _Body)
    require_text_format(body.response_format)
    if not body.messages:
        raise ConfigError("messages=[]: a dialog has one message or more")
    tools = tuple(_tool(tool) for tool in body.tools or ())
    return Request(
        model=body.model or "",
        messages=tuple(map(_message, body.messages)),
        tools=tools,
        tool_choice=required(choice_of(body.tool_choice), tools),
        parallel=body.parallel_tool_calls is not False,
        sampling=body.sampling(),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        logprobs=bool(body.logprobs),
        stream=bool(body.stream),
        token_ids=bool(body.return_token_ids),
        usage=bool((body.stream_options or {}).get("include_usage")),
    )


def whole(response: Response, logprobs: Json | None) -> Json:
    """The response as JSON. logprobs: of its tokens, in this dialect's format."""
    message: Json = {**response.message}
    if response.reasoning:
        message["reasoning_content"] = response.reasoning
    choice = {
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": _ended(response),
    }
    made = {**_head(response, "chat.completion"), "choices": [choice], "usage": _usage(response)}
    if response.request.token_ids:
        # vLLM's names for the ids that were sampled from, and for those that were sampled.
        choice["token_ids"] = list(response.completion.completion_ids or ())
        made["prompt_token_ids"] = list(response.completion.prompt_ids or ())
    return made


def events(response: Response, logprobs: Json | None) -> Iterator[Event]:
    """The response as events: its parts, the reason for its end, the usage on request, [DONE]."""
    head = _head(response, "chat.completion.chunk")

    def chunk(delta: Json, reason: str | None = None, logprobs: Json | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return "", {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if response.reasoning:
        yield chunk({"reasoning_content": response.reasoning})
    if response.content:
        yield chunk({"content": response.content})
    for index, call in enumerate(message_calls(response.calls)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, _ended(response), logprobs)
    if response.request.usage:
        yield "", {**head, "choices": [], "usage": _usage(response)}
    yield "", "[DONE]"


def _head(response: Response, kind: str) -> Json:
    return {
        "id": response.id,
        "object": kind,
        "created": response.created,
        "model": response.request.model,
    }


def _ended(response: Response) -> str:
    """The reason for the end; a model's own refusal is another dialect's."""
    reason = response.finish_reason
    return "stop" if reason == "refusal" else reason


def _usage(response: Response) -> Json:
    prompt, sampled = response.prompt_tokens, response.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _message(raw: object) -> Message:
    """The message in the format of chat templates, without the fields of clients."""
    if not isinstance(raw, dict):
        raise ConfigError(f"a message is an object with a role and content, got {raw!r:.200}")
    role = raw.get("role")
    role = ROLES.get(role, role) if isinstance(role, str) else None
    if role not in ("system", "user", "assistant", "tool"):
        raise ConfigError(f"a message has the role {raw.get('role')!r:.100}")
    message: dict[str, Any] = {"role": role, "content": text_of(raw.get("content"))}
    if role == "tool":
        message["tool_call_id"] = str(raw.get("tool_call_id") or "")
    if role == "assistant" and raw.get("tool_calls"):
        if not isinstance(raw["tool_calls"], list):
            raise ConfigError(f"tool_calls is a list, got {raw['tool_calls']!r:.200}")
        message["tool_calls"] = message_calls(list(map(_call, raw["tool_calls"])))
    if role == "assistant" and isinstance(raw.get("reasoning_content"), str):
        message["reasoning_content"] = raw["reasoning_content"]
    return cast(Message, message)


def _call(raw: object) -> ToolCall:
    match raw:
        case {"function": {"name": str(name), **function}, **rest}:
            # Programs leave arguments out, and send objects, as servers do.
            arguments = arguments_text(function.get("arguments"))
            return ToolCall(id=str(rest.get("id") or ""), name=name, arguments=arguments)
    raise ConfigError(f"a tool call has a function with a name, got {raw!r:.200}")


def _tool(raw: object) -> ToolSchema:
    match raw:
        case {"type": "function", "function": function}:
            return tool_of(function)
    raise ConfigError(f"a tool is of type function, got {raw!r:.200}")
