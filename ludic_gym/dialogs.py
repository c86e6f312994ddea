"""Dialogs as servers and chat templates accept them, and calls that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ludic_gym.prompts import SampledMessage
from ludic_gym.trail import Trail, as_trail
from ludic_gym.types import Message, ToolCall, ToolSchema

UNREADABLE = "unreadable_call"
"""Name of a call that could not be read. No tool has it, so that its result is an error."""
# The pattern of OpenAI and Anthropic, for at most 64 characters.
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
Change = Callable[[Sequence[Message]], list[Message]]
"""Another form of a dialog, for a server or chat template that refuses the usual one."""


def unreadable_call(text: str) -> ToolCall:
    """The call of a model that no parser could read. text: what the model wrote."""
    return ToolCall(id="call_0", name=UNREADABLE, arguments=text)


def is_object(text: str) -> bool:
    """True for the text of a JSON object, as the arguments of a call are."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def sendable_arguments(text: str) -> str:
    """The arguments of a tool call; "{}" for a text that is no JSON object.

    Servers refuse each later request with a text that their templates cannot read. The completion
    keeps it, and the result of the call tells the model what was wrong.

    >>> sendable_arguments('{"a": 2}'), sendable_arguments('{"a": 2')
    ('{"a": 2}', '{}')
    """
    return text if is_object(text) else "{}"


def message_calls(calls: Iterable[ToolCall]) -> list[Any]:
    """Tool calls in the format of messages, with the arguments as the model wrote them."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """Names of the called tools, by the ids of their calls."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return {call["id"]: call["function"]["name"] for call in calls}


class SendableDialog:
    """A growing dialog as every server and chat template takes it; see `sendable_dialog`.

    names: of the calls that results are of, by the ids of the calls; those of its messages are
        added.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._first_names = names or {}
        self._seen: Trail[Message] | None = None

    def _restart(self) -> None:
        self._seen = self._made = Trail[Message]([])
        self._names, self._pending = dict(self._first_names), list[str]()

    def of(self, messages: Sequence[Message]) -> Trail[Message]:
        """The whole dialog. Only what it adds to that of the last time is looked at."""
        dialog = as_trail(messages)
        if self._seen is None or not dialog.continues(self._seen):
            self._restart()
        added = list[Message]()
        for message in dialog[len(self._seen or ()) :]:
            self._add(_fitting(message, self._names), added)
        self._made += added
        self._seen = dialog
        return self._made

    def _add(self, fitting: Message, added: list[Message]) -> None:
        if fitting["role"] == "tool":
            self._pending = [id for id in self._pending if id != fitting["tool_call_id"]]
        elif fitting["role"] == "user" and self._pending:
            added += [_not_run(id, self._names[id]) for id in self._pending]
            self._pending = []
        if not added and self._made and fitting["role"] == self._made[-1]["role"] != "tool":
            added.append(self._made[-1])
            self._made = self._made.first(len(self._made) - 1)
        if added and added[-1]["role"] == fitting["role"] != "tool":
            added[-1] = _joined(added[-1], fitting)
        else:
            added.append(fitting)
        if fitting.get("tool_calls"):
            called = tool_names([fitting])
            self._names |= called
            self._pending += called


def sendable_dialog(
    messages: Sequence[Message], names: Mapping[str, str] | None = None
) -> Trail[Message]:
    r"""The dialog as every server and chat template takes it; messages that fit stay the same.

    Messages of one role in a row are one. A result has the name of its tool, and one without its
    call is a message of the user. A call without its result, such as of a reply that was cut off,
    has an error as its result. Arguments of calls are JSON objects.
    names: of the calls that the results are of; None for those of the messages.

    >>> user: Message = {"role": "user", "content": "a"}
    >>> sendable_dialog([user, {"role": "tool", "tool_call_id": "1", "content": "b"}])
    ({'role': 'user', 'content': 'a\n\n<tool_result>\nb\n</tool_result>'},)
    """
    return SendableDialog(tool_names(messages) if names is None else names).of(messages)


def sendable_names(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    """The dialog with names of calls as servers take them, such as of tools that do not exist.

    tools: that are offered; their names stay as they are.
    """
    offered = {tool["function"]["name"] for tool in tools}

    def sent(name: str) -> str:
        return name if name in offered else _NO_NAME.sub("_", name)[:64] or UNREADABLE

    made: list[Message] = []
    for message in messages:
        fields: dict[str, Any] = dict(message)
        if message["role"] == "tool" and "name" in message:
            fields["name"] = sent(message["name"])
        if calls := message.get("tool_calls"):
            functions = [
                {**call["function"], "name": sent(call["function"]["name"])} for call in calls
            ]
            fields["tool_calls"] = [
                {**call, "function": function}
                for call, function in zip(calls, functions, strict=True)
            ]
        made.append(message if fields == message else cast(Message, fields))
    return made


def change_for(refusal: str) -> Change | None:
    """The form of dialogs that a server or chat template accepts; None for any other refusal.

    >>> change_for("System role not supported") is system_in_user
    True
    """
    return next((change for words, change in CHANGES if words.search(refusal)), None)


def changed_dialog(messages: Sequence[Message], changes: Iterable[Change]) -> Sequence[Message]:
    """The dialog with these changes, in their order."""
    for change in changes:
        messages = sendable_dialog(change(messages))
    return messages


def system_in_user(messages: Sequence[Message]) -> list[Message]:
    """The dialog with its system prompt at the beginning of the first message of the user."""
    return [_from_user(m) if m["role"] == "system" else m for m in messages]


def system_first(messages: Sequence[Message]) -> list[Message]:
    """The dialog with no system message but the first; later ones are the user's."""
    return [*messages[:1], *system_in_user(messages[1:])]


def results_of_user(messages: Sequence[Message]) -> list[Message]:
    """The dialog with what the user says after results of tools at the end of the last result."""
    made: list[Message] = []
    for message in messages:
        if made and made[-1]["role"] == "tool" and message["role"] == "user":
            made[-1] = _joined(made[-1], message)
        else:
            made.append(message)
    return made


def without_empty(messages: Sequence[Message]) -> list[Message]:
    """The dialog without messages that say nothing, such as a reply of a thought alone."""
    return [m for m in messages if (m["content"] or "").strip() or m.get("tool_calls")]


def without_thoughts(messages: Sequence[Message]) -> list[Message]:
    """The dialog without the thoughts beside its messages."""
    return [
        cast(Message, {n: value for n, value in m.items() if not n.startswith("reasoning")})
        for m in messages
    ]


# Of Mistral's API and templates; of Qwen's; of Mistral, Moonshot and Gemini; of strict servers; of
# Gemma's templates, of older ones of Mistral, and of Google.
CHANGES: Sequence[tuple[re.Pattern[str], Change]] = [
    (re.compile(words, re.IGNORECASE | re.DOTALL), change)
    for words, change in (
        (r"role 'user' after role 'tool'|must alternate.*except for tool", results_of_user),
        (r"system message must be (at the beginning|(the )?first)", system_first),
        (
            r"(must|should) not be empty|must have either content or tool_calls"
            r"|(contents?|messages?|parts?) (is|are|cannot be|can't be) empty",
            without_empty,
        ),
        (
            r"reasoning(_content)?\b.{0,80}(extra|not permitted|not supported|unsupported|unknown)"
            r"|extra_forbidden.{0,80}reasoning",
            without_thoughts,
        ),
        (
            r"(system|developer) (role|message|prompt|instruction)s?.{0,30}"
            r"(not|n't|un).{0,4}(support|enabled|allow)|roles must alternate"
            r"|only user.{0,60}roles? (are|is) (supported|allowed)|got system\b",
            system_in_user,
        ),
    )
]


def _not_run(id: str, name: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "name": name, "content": "Error: not run"}


def _fitting(message: Message, names: Mapping[str, str]) -> Message:
    """The message itself, or as another that can be sent."""
    if message["role"] == "tool":
        name = names.get(message["tool_call_id"])
        if name is None:
            text = f"<tool_result>\n{message['content'] or ''}\n</tool_result>"
            return {"role": "user", "content": text}
        return message if message.get("name") else cast(Message, {**message, "name": name})
    calls = message.get("tool_calls") or []
    if all(is_object(call["function"]["arguments"]) for call in calls):
        return message
    sent = []
    for call in calls:
        function = call["function"]
        arguments = sendable_arguments(function["arguments"])
        sent.append({**call, "function": {**function, "arguments": arguments}})
    return cast(Message, {**message, "tool_calls": sent})


def _joined(first: Message, second: Message) -> Message:
    """Two messages as one of the first one's role."""
    text = "\n\n".join(filter(None, (first["content"], second["content"])))
    both: dict[str, Any] = {**first, "content": text}
    # That of a user's message says where a single text is from.
    if first["role"] != "tool":
        both.pop("name", None)
    if calls := [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]:
        both |= {"tool_calls": calls, "content": text or None}
    return cast(Message, both)


def _from_user(message: Message) -> Message:
    return {"role": "user", "content": message["content"]}


def thought_of(message: Message) -> str:
    """The thought beside a reply, of those that were sampled here or came with a request."""
    beside = cast("Mapping[str, Any]", message).get("reasoning_content") or ""
    sampled: object = message
    return str(beside or (sampled.reasoning if isinstance(sampled, SampledMessage) else ""))
