"""Prompts whose tokens continue the tokens that were sampled before.

A chat template turns a dialog into text, and text into tokens. The sampled tokens of a text may
differ from those of a tokenizer, and templates may rewrite earlier turns. Turns become one training
row only if each prompt begins with the previous prompt and completion.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from ludic_gym.types import Completion, Message, ToolSchema

# (messages, True if the assistant's reply comes next) -> token ids of the chat template. With True,
# a last message of the assistant is continued. Dialogs with tools have them as a third argument.
Render = Callable[..., Sequence[int]]
# (completion, tools that were offered) -> the completion with the tool calls in its text.
ReadCalls = Callable[[Completion, Sequence[ToolSchema]], Completion]


class SampledMessage(dict[str, Any]):
    """An assistant message with its sampled tokens.

    prompt: the messages before it. tools: those that were offered.
    added: the end of its text that was not sampled; only in a reply that will be continued.
    """

    __slots__ = ("_completion", "added", "prompt", "tools")

    def __init__(
        self,
        message: Message,
        prompt: Sequence[Message],
        completion: Completion,
        added: str,
        tools: Sequence[ToolSchema],
    ) -> None:
        super().__init__(message)
        self.prompt = prompt
        self.tools = tools
        self.added = added
        self._completion = completion

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """Of prompt and reply; None if the client did not return them."""
        # Made when a prompt is: kept in every message, they would grow with the square of a dialog.
        completion = self._completion
        if completion.prompt_ids is None or completion.completion_ids is None:
            return None
        return completion.prompt_ids + completion.completion_ids

    @property
    def reasoning(self) -> str:
        """The thought that the server returned beside the text."""
        return self._completion.reasoning

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Messages never change, and each one holds the prompt before it: copies would be quadratic.
        return self


def sampled_message(
    message: Message,
    prompt: Sequence[Message],
    completion: Completion,
    added: str = "",
    tools: Sequence[ToolSchema] = (),
) -> Message:
    """The message with the tokens that `ExactPrompts` needs to continue it."""
    return cast(Message, SampledMessage(message, prompt, completion, added, tools))


class ExactPrompts:
    """Token ids of dialogs that begin with the sampled ids of earlier replies.

    extended: number of prompts that continue the sampled ids of the newest reply.
    rewritten: number of prompts that do not, because the template or the context has changed
        earlier turns; they start a new training row.
    """

    def __init__(self, render: Render) -> None:
        self._render = render
        self._closing = _closing(render)
        self.extended = 0
        self.rewritten = 0

    def token_ids(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> tuple[int, ...]:
        """The prompt for the next reply, or for the rest of it if the dialog ends with one.

        tools: that the prompt offers; others than the newest reply had rewrite the prompt.
        """
        index = newest_sampled(messages)
        # A template that knows no tools may be a function of two arguments.
        extra = (tools,) if tools else ()
        if index is None:
            return tuple(self._render(messages, True, *extra))
        reply, is_last = messages[index], index + 1 == len(messages)
        rest = None
        # The messages before the reply, and the tools, are still those of its prompt.
        sampled: object = reply
        if (
            isinstance(sampled, SampledMessage)
            and list(sampled.tools) == list(tools)
            and list(sampled.prompt) == list(messages[:index])
        ):
            rest = (
                self._addition(messages, *extra) if is_last else self._rest(messages, index, *extra)
            )
        if rest is None:
            self.rewritten += 1
            return tuple(self._render(messages, True, *extra))
        self.extended += 1
        return (_sampled_ids(reply) if is_last else self.turn_ids(reply)) + rest

    def turn_ids(self, reply: Message) -> tuple[int, ...]:
        """Token ids from the first of the prompt to the end of the turn of a sampled reply."""
        ids = _sampled_ids(reply)
        # A model samples the end of its turn, unless the reply was cut off or stopped by a string.
        ended = bool(self._closing) and ids[-1] == self._closing[0]
        return ids + self._closing[ended:]

    def _rest(
        self, messages: Sequence[Message], index: int, *tools: Sequence[ToolSchema]
    ) -> tuple[int, ...] | None:
        """The template's tokens after the turn of that reply; None if those up to it changed."""
        # Templates may change earlier turns, such as removing thoughts: only if the rendered dialog
        # still begins with the turns up to the reply can its sampled tokens replace that part.
        rendered = tuple(self._render(messages, True, *tools))
        head = tuple(self._render(messages[: index + 1], False, *tools))
        if rendered[: len(head)] != head:
            return None
        return rendered[len(head) :]

    def _addition(
        self, messages: Sequence[Message], *tools: Sequence[ToolSchema]
    ) -> tuple[int, ...] | None:
        """The tokens of the text added to the last reply; None if the template changes the prompt.

        Tokenized as a reply of its own: the tokens before it are those that were sampled.
        """
        reply: object = messages[-1]
        assert isinstance(reply, SampledMessage)
        if not reply.added:
            return ()
        added: Message = {"role": "assistant", "content": reply.added}
        head = tuple(self._render(messages[:-1], True, *tools))
        rendered = tuple(self._render([*messages[:-1], added], True, *tools))
        return rendered[len(head) :] if rendered[: len(head)] == head else None


def newest_sampled(messages: Sequence[Message]) -> int | None:
    """Index of the last reply whose token ids are known; None without one."""
    # From the end: only the newest reply has all earlier tokens in its prompt.
    for index in range(len(messages) - 1, -1, -1):
        if _sampled_ids(messages[index]):
            return index
    return None


def _sampled_ids(message: object) -> tuple[int, ...]:
    return (message.token_ids or ()) if isinstance(message, SampledMessage) else ()


def _closing(render: Render) -> tuple[int, ...]:
    """The tokens that the template writes after an assistant's text.

    Found as the common end of two dialogs that differ only in that text.
    """
    question: Message = {"role": "user", "content": "?"}
    one, other = (
        tuple(render([question, {"role": "assistant", "content": text}], False)) for text in "ab"
    )
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one[::-1], other[::-1]))  # noqa: B905
    return tuple(token for token, _ in same)[::-1]
