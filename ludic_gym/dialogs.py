"""Dialogs as servers and chat templates accept them, and calls that cannot be read."""

from __future__ import annotations

import json

from ludic_gym.types import ToolCall

UNREADABLE = "unreadable_call"
"""Name of a call that could not be read. No tool has it, so that its result is an error."""


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
