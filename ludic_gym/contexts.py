"""Contexts: selection of the messages of a dialog for the next prompt.

A context stores every message and selects some of them. Later messages change nothing in what
`messages` has returned; the messages in it must not be changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from ludic_gym.errors import ConfigError
from ludic_gym.trail import Trail
from ludic_gym.types import Message


class Context(Protocol):
    """Stores a dialog and selects the messages of the next prompt."""

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog; "" means no system message."""

    def add(self, message: Message) -> None:
        """Store a message."""

    def messages(self) -> Sequence[Message]:
        """The messages of the next prompt; as a trail, they are not looked at again each turn."""


class FullDialog:
    """Context with all messages.

    >>> context = FullDialog()
    >>> context.reset("Play well.")
    >>> context.add({"role": "user", "content": "board 1"})
    >>> context.messages()
    ({'role': 'system', 'content': 'Play well.'}, {'role': 'user', 'content': 'board 1'})
    """

    def __init__(self) -> None:
        self._stored: Trail[Message] = Trail([])

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog."""
        self._stored = Trail(stored_system_prompt(system_prompt))

    def add(self, message: Message) -> None:
        """Store a message."""
        self._stored = self._stored.then(message)

    def messages(self) -> Sequence[Message]:
        """All messages."""
        return self._stored


class LatestObservation(FullDialog):
    """Context with the system message and the dialog since the newest observation.

    For games whose observation has the whole state: prompts stay short in long episodes.

    >>> context = LatestObservation()
    >>> for text in ("board 1", "board 2"):
    ...     context.add({"role": "user", "content": text})
    >>> [message["content"] for message in context.messages()]
    ['board 2']
    """

    def add(self, message: Message) -> None:
        """Store a message; an observation starts a new turn and removes the previous one."""
        if is_observation(message):
            # Only the first message can be the system prompt.
            self._stored = Trail([m for m in self._stored[:1] if m["role"] == "system"])
        super().add(message)


class TruncatedThinkingContext(FullDialog):
    """Context with the thinking of the current turn only; stored messages keep theirs.

    placeholder: replaces a `<think>...</think>` block of an earlier turn. Without one, the white
        space after the block is removed as well.
    A reply that starts inside a block, because the chat template opened it, is cut up to its
    `</think>`; an unclosed block is cut to the end.

    >>> context = TruncatedThinkingContext(placeholder="...")
    >>> context.add({"role": "user", "content": "board 1"})
    >>> context.add({"role": "assistant", "content": "<think>centre?</think> B2"})
    >>> context.add({"role": "user", "content": "board 2"})
    >>> [message["content"] for message in context.messages()]
    ['board 1', '... B2', 'board 2']
    """

    def __init__(self, placeholder: str = "") -> None:
        super().__init__()
        self._placeholder = placeholder

    def messages(self) -> Sequence[Message]:
        """All messages, without the thinking in replies before the newest observation."""
        turn_start = max(_turn_starts(self._stored), default=0)
        messages = list(self._stored)
        for i, message in enumerate(messages[:turn_start]):
            content = message["content"]
            if message["role"] == "assistant" and content and "think>" in content:
                content = without_thinking(content, self._placeholder)
                messages[i] = {**message, "content": content}
        return messages


class SlidingWindow:
    """Context with the system message and as many of the newest turns as fit, at least one.

    max_tokens: limit for the selected messages, as `count_tokens` measures their texts.
    summarize: turns the messages that do not fit into a text, which is added to the system message.
    Raises ConfigError for a limit below 1.

    >>> window = SlidingWindow(max_tokens=10, count_tokens=len)
    >>> for text in ("abcdef", "ghijkl"):
    ...     window.add({"role": "user", "content": text})
    >>> [message["content"] for message in window.messages()]
    ['ghijkl']
    """

    def __init__(
        self,
        max_tokens: int,
        count_tokens: Callable[[str], int],
        summarize: Callable[[Sequence[Message]], str] | None = None,
    ) -> None:
        if max_tokens < 1:
            raise ConfigError(f"max_tokens is at least 1, got {max_tokens}")
        self._max_tokens = max_tokens
        self._count_tokens = count_tokens
        self._summarize = summarize
        self.reset("")

    def reset(self, system_prompt: str) -> None:
        """Forget the dialog."""
        self._system_prompt = system_prompt
        self._stored: list[Message] = []
        self._sizes: list[int] = []

    def add(self, message: Message) -> None:
        """Store a message."""
        self._stored.append(message)
        # Once per message: `messages` runs in every turn, and tokenizers are slow.
        calls = message.get("tool_calls")
        text = (message["content"] or "") + (json.dumps(calls) if calls else "")
        self._sizes.append(self._count_tokens(text))

    def messages(self) -> Sequence[Message]:
        """The system message, with the summary if there is one, and the turns that fit."""
        left = self._max_tokens - self._count_tokens(self._system_prompt)
        start = len(self._stored)
        # Backwards from the newest turn, which is always part of the window.
        for turn_start in reversed(_turn_starts(self._stored)):
            left -= sum(self._sizes[turn_start:start])
            if left < 0 and start < len(self._stored):
                break
            start = turn_start
        # For nothing left out, a summary would cost a model call and tell the model nothing new.
        summary = ""
        if start and self._summarize is not None:
            summary = self._summarize(tuple(self._stored[:start]))
        system_prompt = "\n\n".join(filter(None, (self._system_prompt, summary)))
        return stored_system_prompt(system_prompt) + self._stored[start:]


def without_thinking(text: str, placeholder: str = "") -> str:
    """The text with each `<think>...</think>` replaced, or removed with the space after it.

    >>> without_thinking("<think>2 + 3</think> 5")
    '5'
    >>> without_thinking("<think>2 + 3</think> 5", placeholder="...")
    '... 5'
    """
    # A template may have written the opening tag into the prompt, so it is not in the reply.
    first_end = text.find("</think>")
    if first_end >= 0 and "<think>" not in text[:first_end]:
        text = "<think>" + text
    result, *thoughts = text.split("<think>")
    for thought in thoughts:
        # Without a closing tag the token limit cut the thought: all of the rest belongs to it.
        _, closing, rest = thought.partition("</think>")
        result += placeholder + (rest if placeholder or not closing else rest.lstrip())
    return result


def _turn_starts(messages: Sequence[Message]) -> list[int]:
    """Indices of the first messages of turns; the first turn includes all before it."""
    return [i for i, message in enumerate(messages) if is_observation(message) or i == 0]


def stored_system_prompt(system_prompt: str) -> list[Message]:
    """The start of a dialog: one system message, or nothing for ""."""
    return [{"role": "system", "content": system_prompt}] if system_prompt else []


def is_observation(message: Message) -> bool:
    """True if the message begins a turn: a user message that is no tool's result."""
    return message["role"] == "user" and "name" not in message
