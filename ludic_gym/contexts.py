"""Contexts: what of a dialog so far goes into the next prompt.

A context stores every message and shows some of them. The list that `messages` returns is the
caller's own and stays as it is; the messages inside must not be changed by anybody.
"""

from __future__ import annotations

from typing import Protocol

from ludic_gym.types import Message


class Context(Protocol):
    """Stores a dialog and shows what the next prompt contains of it."""

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog; "" means no system message."""

    def add(self, message: Message) -> None:
        """Store a message."""

    def messages(self) -> list[Message]:
        """The messages of the next prompt, as a fresh list."""


class FullDialog:
    """Shows everything."""

    def __init__(self) -> None:
        self._stored: list[Message] = []

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog."""
        self._stored = stored_system_prompt(system_prompt)

    def add(self, message: Message) -> None:
        """Store a message."""
        self._stored.append(message)

    def messages(self) -> list[Message]:
        """All messages."""
        return list(self._stored)


class LatestObservation:
    """Shows the system message and the dialog since the newest observation.

    For games whose observation says all there is to know: prompts stay short however long it takes.
    """

    def __init__(self) -> None:
        self._system: list[Message] = []
        self._turn: list[Message] = []

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog."""
        self._system = stored_system_prompt(system_prompt)
        self._turn = []

    def add(self, message: Message) -> None:
        """Store a message; an observation starts a new turn and drops the one before."""
        if is_observation(message):
            self._turn = []
        self._turn.append(message)

    def messages(self) -> list[Message]:
        """The system message and the messages of this turn."""
        return self._system + self._turn


def stored_system_prompt(system_prompt: str) -> list[Message]:
    """The start of a dialog: one system message, or nothing for ""."""
    return [{"role": "system", "content": system_prompt}] if system_prompt else []


def is_observation(message: Message) -> bool:
    """Whether the message begins a turn: a user message that is no tool's result."""
    return message["role"] == "user" and "name" not in message
