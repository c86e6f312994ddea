"""OpenAI's /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from ludic_gym.errors import ConfigError
from ludic_gym.types import Message, ToolCall
from ludic_train.agents.dialects.fields import (
    SAMPLING,
    Positive,
    SamplingBody,
    body_of,
    choice_of,
    remembered,
    required,
    schema_of,
    text_of,
    tool_of,
    usage_of,
)
from ludic_train.agents.prompts import message_calls
from ludic_train.agents.types import Answer, Event, Json, Piece, Reply, Request

REFUSED = (*SAMPLING, "top_logprobs", "modalities")
ROLES = {"developer": "system", "function": "tool"}


class _Body(SamplingBody, kw_only=True):
    messages: list[msgspec.Raw]
    tools: list[msgspec.Raw] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    response_format: Any = None


def read(data: bytes) -> Request:
    """The request of a body. Raises ConfigError for one that cannot be followed."""
    body = body_of(data, _Body, REFUSED)
    if not body.messages:
        raise ConfigError("messages=[]: a dialog has one message or more")
    tools = tuple(_tool(tool) for tool in body.tools or ())
    return Request(
        **body.shared(),
        messages=tuple(map(_message, body.messages)),
        tools=tools,
        tool_choice=required(choice_of(body.tool_choice), tools),
        parallel=body.parallel_tool_calls is not False,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        logprobs=bool(body.logprobs),
        schema=schema_of(body.response_format),
    )


def whole(answer: Answer, logprobs: Sequence[Json | None]) -> Json:
    """The response. logprobs: of each choice, in the dialect's format."""
    choices = [
        {
            "index": i,
            "message": _shown(reply),
            "logprobs": found,
            "finish_reason": reply.finish_reason,
            **_ids(answer, reply),
        }
        for i, (reply, found) in enumerate(zip(answer.replies, logprobs, strict=True))
    ]
    usage = usage_of(answer.prompt_tokens, answer.sampled_tokens)
    ids = {"prompt_token_ids": list(answer.replies[0].completion.prompt_ids or ())}
    extra = ids if answer.request.token_ids else {}
    return {
        **_head(answer.id, answer, "chat.completion"),
        "choices": choices,
        "usage": usage,
        **extra,
    }


class Events:
    """Events of a stream. id, created: of the response."""

    def __init__(self, id: str, created: int, request: Request) -> None:
        self._head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.model,
        }
        # Clients put the parts of calls together by this number, which begins at 0 per choice.
        self._calls = [0] * request.n

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """The role of each choice; the usage comes last in this dialect."""
        for index in range(len(self._calls)):
            yield self._chunk({"role": "assistant", "content": ""}, index)

    def piece(self, piece: Piece, index: int = 0) -> Iterator[Event]:
        """Events of a piece of a choice."""
        if piece.call is not None:
            (call,) = message_calls([piece.call])
            yield self._chunk({"tool_calls": [{"index": self._calls[index], **call}]}, index)
            self._calls[index] += 1
        else:
            name = "content" if piece.kind == "text" else "reasoning_content"
            yield self._chunk({name: piece.text}, index)

    def end(self, answer: Answer, logprobs: Sequence[Json | None]) -> Iterator[Event]:
        """Reason and log-probs of each choice, the usage on request, and [DONE].

        Log-probs are those of the whole choice, because pieces of text are not cut as tokens are.
        """
        for index, (reply, found) in enumerate(zip(answer.replies, logprobs, strict=True)):
            yield self._chunk({}, index, reply.finish_reason, found)
        if answer.request.usage:
            usage = usage_of(answer.prompt_tokens, answer.sampled_tokens)
            yield "", {**self._head, "choices": [], "usage": usage}
        yield "", "[DONE]"

    def _chunk(
        self, delta: Json, index: int = 0, reason: str | None = None, logprobs: Json | None = None
    ) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return "", {**self._head, "choices": [choice]}


def _head(id: str, answer: Answer, kind: str) -> Json:
    return {"id": id, "object": kind, "created": answer.created, "model": answer.request.model}


def _shown(reply: Reply) -> Json:
    """The message of a choice; its content is null where there are calls alone, as at OpenAI."""
    message: Json = {"role": "assistant", "content": reply.content or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = message_calls(reply.calls)
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    return message


def _ids(answer: Answer, reply: Reply) -> Json:
    """The field by which vLLM returns token ids, on request (`return_token_ids`)."""
    ids = list(reply.completion.completion_ids or ())
    return {"token_ids": ids} if answer.request.token_ids else {}


@remembered
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
        message["tool_calls"] = _calls(raw["tool_calls"])
    if role == "assistant" and isinstance(raw.get("reasoning_content"), str):
        message["reasoning_content"] = raw["reasoning_content"]
    return cast(Message, message)


def _calls(raw: object) -> list[Any]:
    if not isinstance(raw, list):
        raise ConfigError(f"tool_calls is a list, got {raw!r:.200}")
    return message_calls([_call(call) for call in raw])


def _call(raw: object) -> ToolCall:
    match raw:
        case {"function": {"name": str(name), "arguments": str(arguments)}, **rest}:
            return ToolCall(id=str(rest.get("id") or ""), name=name, arguments=arguments)
    raise ConfigError(f"a tool call has a function with a name and arguments, got {raw!r:.200}")


@remembered
def _tool(raw: object) -> Any:  # noqa: ANN401
    match raw:
        case {"type": "function", "function": function}:
            return tool_of(function)
    raise ConfigError(f"a tool is of type function, got {raw!r:.200}")
