"""The chat-completions format: requests from dialogs, completions from responses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from ludic_gym.clients.faults import ABORTED, RejectedReply
from ludic_gym.clients.responses import excerpt
from ludic_gym.dialogs import (
    is_object,
    sendable_dialog,
    sendable_names,
    thought_of,
    unreadable_call,
)
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.trail import Trail, token_ids
from ludic_gym.types import (
    Completion,
    FinishReason,
    Message,
    Sampling,
    ToolCall,
    ToolSchema,
)

T = TypeVar("T")


# vLLM has renamed the field; hosted servers use either name.
THOUGHT_FIELDS = ("reasoning_content", "reasoning")


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """The sampling parameters, as in the chat and the completions route.

    Fields that are None, empty, or without effect where they are 0, are left out.

    >>> sampling_fields(Sampling(temperature=0.5, seed=7))
    {'temperature': 0.5, 'top_p': 1.0, 'max_tokens': 256, 'seed': 7}
    """
    fields = {**asdict(sampling), "stop": list(sampling.stop)}
    # A limit of ours, which no server knows.
    del fields["max_length"]
    # Some servers reject an empty list or null, and OpenAI's own the last two, whatever they are.
    for name, absent in (("stop", []), ("seed", None), ("top_k", 0), ("min_p", 0)):
        if fields[name] == absent:
            del fields[name]
    return fields


def chat_body(
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    tools: Sequence[ToolSchema],
    *,
    thought_field: str = "",
    signed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A chat request for any OpenAI-style server, as the JSON object of its body.

    model: name of the model on the server.
    tools: schemas that the model may call; "tools" is left out of the request if there are none.
    thought_field: in which the server has sent thoughts; it gets those back that led to calls.
    signed: further fields of calls, by their ids, as of `signed_calls`.
    """
    # OpenAI rejects an empty list of tools.
    offer = {"tools": list(tools)} if tools else {}
    dialog = sendable_names(sendable_dialog(messages), tools)
    sent = [_sent_message(message, thought_field, signed or {}) for message in dialog]
    return {"model": model, "messages": sent, **sampling_fields(sampling), **offer}


def _sent_message(
    message: Message, thought_field: str, signed: Mapping[str, Any]
) -> dict[str, Any]:
    """The message without what servers reject in it: names of users, and thoughts of others."""
    fields = {n: value for n, value in message.items() if not n.startswith("reasoning")}
    # Mistral's API has it for tools alone.
    if message["role"] != "tool":
        fields.pop("name", None)
    if calls := message.get("tool_calls"):
        fields["tool_calls"] = [{**call, **signed.get(call["id"], {})} for call in calls]
        if thought_field:
            # Moonshot refuses a call without the field, or with an empty one.
            fields[thought_field] = thought_of(message) or " "
    return fields


def signed_calls(response: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a response's calls that only its server knows, by the ids of the calls.

    Gemini refuses a call that comes back without its signature.
    """
    calls = (first_choice(response).get("message") or {}).get("tool_calls")
    known = ("id", "type", "function", "index")
    signed: dict[str, Any] = {}
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("id"), str) and call["id"]:
            fields = {name: value for name, value in call.items() if name not in known}
            signed |= {call["id"]: fields} if fields else {}
    return signed


def plain_completion(response: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The response's first choice as a Completion without token ids and log-probs.

    A call that cannot be read is a call of the tool `UNREADABLE`, and never none.
    sampling: the parameters that were requested; the response does not repeat them.
    Raises ClientError if the response is malformed, or ended for a reason that makes it unusable.
    """
    choice = first_choice(response)
    # null in a reply that a filter has taken away.
    is_empty = "message" in choice and choice["message"] is None
    message = {} if is_empty else required_field(choice, "message", dict)
    text, ended, calls = _text(message), choice.get("finish_reason"), _calls(message)
    # The server has read no call, but a part of one: the model wrote it, and it is no answer.
    if not calls and _MALFORMED.search(str(ended)):
        text, calls = "", (unreadable_call(text),)
    reason = finish_reason(ended, has_calls=bool(calls))
    _, tokens = count_usage(response.get("usage") or {})
    # vLLM hides a limit behind a part of a call.
    if calls and tokens >= sampling.max_tokens and not is_object(calls[-1].arguments):
        reason = "length"
    return Completion(
        text=text,
        finish_reason=reason,
        sampling=sampling,
        tool_calls=calls,
        reasoning=_reasoning(message),
    )


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message. Raises ClientError for content that is neither text nor its parts."""
    # null in a message that has only tool calls, and in one that refuses in a field of its own.
    content = message.get("content") or message.get("refusal") or ""
    # Reasoning models of Mistral send parts, their thoughts among them.
    if isinstance(content, list):
        return "".join(_parts(content, "text"))
    return required_field({"content": content}, "content", str)


def _parts(content: Sequence[object], kind: str) -> Iterator[str]:
    """The texts of a content's parts of a type: "text", or "thinking", which may have parts."""
    for part in content:
        if not isinstance(part, dict):
            raise ClientError(f"a part of the content is an object, got {excerpt(repr(part))}")
        if part.get("type") == kind:
            nested = part.get(kind)
            if isinstance(nested, list):
                yield "".join(_parts(nested, "text"))
            else:
                yield required_field(part, kind, str)


def thought_field_of(response: Mapping[str, Any]) -> str:
    """The field in which a response has a thought beside its text; "" without one."""
    message = first_choice(response).get("message") or {}
    return next((name for name in THOUGHT_FIELDS if message.get(name)), "")


def _reasoning(message: Mapping[str, Any]) -> str:
    for name in THOUGHT_FIELDS:
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    content = message.get("content")
    return "\n\n".join(_parts(content, "thinking")) if isinstance(content, list) else ""


def _calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    # Older servers send one call in a field of its own.
    legacy = message.get("function_call")
    sent = message.get("tool_calls") or ([{"function": legacy}] if legacy else [])
    return tool_calls(sent if isinstance(sent, list) else [sent])


def tool_calls(sent: Sequence[object]) -> tuple[ToolCall, ...]:
    """The calls of a message, with ids that differ: servers leave ids out, or repeat them."""
    calls: list[ToolCall] = []
    for number, each in enumerate(sent):
        call = _tool_call(each, f"call_{number}")
        is_repeated = call.id in (other.id for other in calls)
        calls.append(replace(call, id=f"{call.id}_{number}") if is_repeated else call)
    return tuple(calls)


def rejected_completion(reply: RejectedReply, sampling: Sampling) -> Completion:
    """The completion of a reply that its server has rejected: its call, or nothing at all."""
    calls = () if reply.unreadable is None else (unreadable_call(reply.unreadable),)
    return Completion(
        text="", finish_reason=reply.finish_reason, sampling=sampling, tool_calls=calls
    )


def token_trace(prompt_ids: object, completion_ids: object, logprobs: object) -> dict[str, Any]:
    """The token fields of a Completion: prompt_ids, completion_ids and logprobs.

    prompt_ids, completion_ids: lists of integers, as the server returned them.
    logprobs: list of numbers in nats, one for each completion id.
    Raises ClientError if a list is missing, has other types, or if the lengths differ: a trainer
    would pair the log-probs with the wrong tokens.

    >>> token_trace([1, 2], [3], [-0.5])
    {'prompt_ids': (1, 2), 'completion_ids': (3,), 'logprobs': (-0.5,)}
    """
    prompt, ids = _integers("prompt ids", prompt_ids), _integers("completion ids", completion_ids)
    # Python's JSON reader accepts NaN and Infinity, either of which would make a loss nan.
    if not isinstance(logprobs, list) or not all(
        isinstance(value, float | int) and math.isfinite(value) for value in logprobs
    ):
        raise ClientError(
            f"the response's log-probs are {excerpt(repr(logprobs))}, not finite numbers"
        )
    values = tuple(map(float, logprobs))
    if len(values) != len(ids):
        raise ClientError(f"the response has {len(ids)} completion ids but {len(values)} log-probs")
    return {"prompt_ids": prompt, "completion_ids": ids, "logprobs": values}


def first_choice(response: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice, the only one that is requested. Raises ClientError if there is none."""
    choices = required_field(response, "choices", list)
    if not choices or not isinstance(choices[0], dict):
        raise ClientError(f"the response has no choice: {excerpt(json.dumps(response))}")
    choice: dict[str, Any] = choices[0]
    return choice


FINISH_REASONS: Mapping[str, FinishReason] = {
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "prohibited_content": "content_filter",
    "refusal": "refusal",
}
"""Finish reasons of servers that are no plain stop, in lower case, with the one used here."""
# Of Gemini, with or without words of its filter before it.
_MALFORMED = re.compile("MALFORMED_FUNCTION_CALL|UNEXPECTED_TOOL_CALL")


def finish_reason(ended: object, *, has_calls: bool = False) -> FinishReason:
    """The reason for which the model stopped.

    ended: as the server names it. One that is not in `FINISH_REASONS` is a "stop", a missing one
    too: what the model said then is its reply. Raises ClientError for one of `ABORTED`.
    """
    if ended in ABORTED:
        raise ClientError(f"finish_reason is {ended!r}: the server ended the reply")
    # Filters write words before it.
    reason = FINISH_REASONS.get(str(ended).lower().rpartition(": ")[2], "stop")
    # Several servers send "stop", or nothing, with calls.
    return "tool_calls" if has_calls and reason == "stop" else reason


def required_field(response: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """The value at the key. Raises ClientError if it is missing or of another type.

    kind: the required type, such as `dict` or `str`.
    """
    value = response.get(key)
    if not isinstance(value, kind):
        raise ClientError(
            f"the response's {key!r} is {value!r}, not a {kind.__name__}: "
            f"{excerpt(json.dumps(response))}"
        )
    return value


def _tool_call(sent: object, id: str) -> ToolCall:
    """A tool call of a message; its arguments stay text, which the model may have got wrong.

    id: of a call that has none. One without a name is `unreadable_call`.
    """
    call = sent if isinstance(sent, dict) else {}
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, dict) else None
    id = call["id"] if isinstance(call.get("id"), str) and call["id"] else id
    if not isinstance(name, str) or not name:
        return replace(unreadable_call(sent if isinstance(sent, str) else json.dumps(sent)), id=id)
    return ToolCall(id=id, name=name, arguments=arguments_text(function.get("arguments")))


def arguments_text(sent: object) -> str:
    """Arguments as JSON text, of a server that leaves them out, sends an object, or doubles them.

    >>> [arguments_text(sent) for sent in (None, {"a": 2}, '{"a": 2}{"a": 2}', '"{}"', '{"a": 2')]
    ['{}', '{"a": 2}', '{"a": 2}', '{}', '{"a": 2']
    """
    if not isinstance(sent, str):
        return json.dumps(sent or {})
    half = sent[: len(sent) // 2]
    if half * 2 == sent and is_object(half):
        return half
    try:
        inner = json.loads(sent)
    except (ValueError, RecursionError):
        return sent
    return inner if isinstance(inner, str) and is_object(inner) else sent


def _integers(name: str, values: object) -> Trail[int]:
    """The list as a trail. name: of the list in the message of a ClientError."""
    # Not isinstance, because True is an int too.
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ClientError(
            f"the response's {name} are {excerpt(repr(values))}, not a list of integers; a server "
            "that returns no token ids can be benchmarked with OpenAIChatClient, not trained on"
        )
    try:
        return token_ids(values)
    except ConfigError as error:
        raise ClientError(f"the response's {name}: {error}") from error


def count_usage(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers of prompt and completion tokens, as the server counts them; 0 without a count.

    >>> count_usage({"prompt_tokens": 12, "completion_tokens": None})
    (12, 0)
    """
    return usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0


def with_cached_tokens(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage with `cached_tokens` beside the other counts, if the server counts them.

    That is: those tokens of the prompt that the server had in its cache.

    >>> with_cached_tokens({"prompt_tokens_details": {"cached_tokens": 8}})["cached_tokens"]
    8
    """
    details = usage.get("prompt_tokens_details")
    # Null for vLLM without the option that counts them, and another form at some gateways.
    count = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return {**usage, "cached_tokens": count} if isinstance(count, int) else usage
