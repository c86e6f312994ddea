"""What vendors send, a row each: a response, and what a client has to make of it."""

from dataclasses import dataclass, field
from typing import Any

from ludic_gym.errors import LudicError, PromptTooLong


@dataclass(frozen=True)
class Row:
    """sent: an object, or the text of a response that is no JSON object.

    calls: name and arguments of each that a policy would run. error: of a response that is no
    reply. tries: requests until the client has its result, from a server that sends `sent` but once
    and then the text "good".
    """

    name: str
    sent: Any
    status: int = 200
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = "stop"
    error: type[LudicError] | None = None
    tries: int = 1


def reply(reason="stop", **message):
    """A response of the chat route."""
    message = {"role": "assistant", "content": None, **message}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def calling(*functions, reason="tool_calls", **fields):
    calls = [{"id": f"c{i}", "type": "function", "function": f} for i, f in enumerate(functions)]
    return reply(reason, tool_calls=calls, **fields)


def failed(message, **fields):
    return {"error": {"message": message, **fields}}


def again(name, sent, status=200):
    """A failure that may pass."""
    return Row(name, sent, status, text="good", tries=2)


def called(name, sent, *calls, cut=False, **expected):
    finish = "length" if cut else "tool_calls"
    return Row(name, sent, calls=list(calls), finish=finish, **expected)


def ended(reason, finish):
    """An end that says nothing else."""
    return Row(f"the end {reason!r}", reply(reason, content="5"), text="5", finish=finish)


def too_long(vendor, status, sent):
    sent = failed(sent) if isinstance(sent, str) else sent
    return Row(f"a prompt that is too long for {vendor}", sent, status, error=PromptTooLong)


def filtered(vendor, status, message, **fields):
    name = f"a prompt that the filter of {vendor} rejects"
    return Row(name, failed(message, **fields), status, finish="content_filter")


ADD = {"name": "add", "arguments": '{"a": 2}'}
TAGGED = '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
CALL = ("add", '{"a": 2}')
