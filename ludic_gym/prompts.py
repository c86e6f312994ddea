"""Prompts whose tokens continue the tokens that were sampled before.

A chat template turns a dialog into text, and text into tokens. The sampled tokens of a text may
differ from those of a tokenizer, and templates may rewrite earlier turns, from which they drop
thoughts. Turns become one training row only if each prompt begins with the previous prompt and
completion: what was sampled stays in the prompt, and only what follows it is the template's. A
context that drops thoughts or turns itself is followed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast
from warnings import warn

from ludic_gym.contexts import is_observation
from ludic_gym.trail import Trail, as_trail, token_ids
from ludic_gym.types import Completion, Message, ToolSchema

# (messages, True if the assistant's reply comes next) -> token ids of the chat template. With True,
# a last message of the assistant is continued. Dialogs with tools have them as a third argument.
Render = Callable[..., Sequence[int]]
# (completion, tools that were offered) -> the completion with the tool calls in its text.
ReadCalls = Callable[[Completion, Sequence[ToolSchema]], Completion]
# Dialogs below this number of messages are rendered whole, and longer ones behind the first
# characters of the first messages.
SHORT, SHOWN = 8, 100
# Tokens that end a turn, at most.
LONGEST_END = 8
# Tokens of a prompt below which sharing takes longer than it is worth.
LONG = 256


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
    def token_ids(self) -> Trail[int] | None:
        """Of prompt and reply; None if the client did not return them."""
        prompt, sampled = self._completion.prompt_ids, self._completion.completion_ids
        if not isinstance(prompt, Trail) or not sampled:
            return None
        return prompt + sampled

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


def sharing(
    completion: Completion, before: Completion | None, *, is_candidate: bool = False
) -> Completion:
    """The completion, in the memory of the call before as far as it continues that.

    is_candidate: other completions of the prompt are drawn too, of which one is continued.
    """
    prompt, ids, call = completion.prompt_ids, completion.completion_ids, completion.call
    if call is None and (prompt is None or len(prompt) < LONG):
        return completion
    if call is not None and before is not None and before.call is not None:
        call = replace(call, messages=as_trail(call.messages).on(as_trail(before.call.messages)))
    if prompt is not None and ids is not None:
        trail = token_ids(prompt)
        if before is not None and before.prompt_ids is not None:
            trail = trail.on(token_ids(before.prompt_ids))
        # The next prompt will have them there.
        if trail.is_newest and not is_candidate:
            ids = (trail + ids).after(len(trail))
        prompt = trail
    return replace(completion, prompt_ids=prompt, completion_ids=ids, call=call)


class ExactPrompts:
    """Token ids of dialogs that begin with the sampled ids of earlier replies.

    What a prompt adds to the one before is rendered alone, behind a short beginning of the dialog.
    Whenever a dialog has doubled, and at its end by `check`, that is compared with the same part of
    the whole dialog; a template in which they differ gets whole dialogs from then on.

    extended: number of prompts that continue the sampled ids of the newest reply.
    rewritten: number of prompts that do not, because the context has changed earlier turns, or the
        tools; they start a new training row.
    renders_whole: the template writes a turn in another way behind a short beginning.
    """

    def __init__(self, render: Render) -> None:
        self._render = render
        self.extended = 0
        self.rewritten = 0
        self.renders_whole = False

    def token_ids(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> Trail[int]:
        """The prompt for the next reply, or for the rest of it if the dialog ends with one.

        tools: that the prompt offers; others than the newest reply had rewrite the prompt.
        """
        index = newest_sampled(messages)
        if index is None:
            return token_ids(self._rendered(messages, tools))
        reply, is_last = messages[index], index + 1 == len(messages)
        more = None
        if _is_continued(messages, index, tools):
            more = (
                self._addition(messages, tools) if is_last else self._rest(messages, index, tools)
            )
        if more is None:
            self.rewritten += 1
            return token_ids(self._rendered(messages, tools))
        self.extended += 1
        ids = _sampled_ids(reply)
        return ids + more[0 if is_last else self._sampled_end(ids, more) :]

    @cached_property
    def _closing(self) -> tuple[int, ...]:
        return _turn_end(self._render)

    def _sampled_end(self, ids: Trail[int], more: tuple[int, ...]) -> int:
        """Number of the tokens after a reply, from the end of its turn on, that end the reply too.

        0 for one that was cut off or stopped by a string: a model samples the end of its turn.
        """
        sizes = range(min(len(ids), len(more), LONGEST_END), 0, -1)
        shared = next((n for n in sizes if ids[len(ids) - n :] == more[:n]), 0)
        # Some templates end the last turn by another token, which the model has sampled.
        return shared or int(ids[-1:] == self._closing[:1])

    def check(self, prompt: Sequence[Message]) -> None:
        """Compare what the last prompt of a dialog added with the same part of the whole dialog."""
        index = newest_sampled(prompt)
        if index is None or index < SHORT or self.renders_whole:
            return
        reply: object = prompt[index]
        if isinstance(reply, SampledMessage) and _is_continued(prompt, index, reply.tools):
            self._rest(prompt, index, reply.tools, check=True)

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], reply_comes: bool = True
    ) -> tuple[int, ...]:
        # A template that knows no tools may be a function of two arguments.
        return tuple(self._render(list(messages), reply_comes, *([tools] if tools else [])))

    def _rest(
        self,
        messages: Sequence[Message],
        index: int,
        tools: Sequence[ToolSchema],
        *,
        check: bool = False,
    ) -> tuple[int, ...] | None:
        """The template's tokens after the text of that reply; None if it cannot be continued."""
        added = len(messages) - index - 1
        if self.renders_whole or index < SHORT:
            return self._after(messages, added, tools)
        rest = self._after(shortened(messages, index), added, tools)
        if not check and index.bit_length() == reply_before(messages, index).bit_length():
            return rest
        whole = self._after(messages, added, tools)
        if rest != whole:
            self.renders_whole = True
            warn(
                f"{self._render!r} writes a turn otherwise in a dialog of {len(messages)} "
                "messages than behind its beginning: whole dialogs are rendered from now on",
                stacklevel=2,
            )
        return whole

    def _after(
        self, messages: Sequence[Message], count: int, tools: Sequence[ToolSchema]
    ) -> tuple[int, ...] | None:
        """The end of a turn, the tokens of the last messages, and of what opens a reply."""
        # Templates may change earlier turns, such as removing thoughts: only if the rendered dialog
        # still begins with the turns up to the reply can its sampled tokens replace that part.
        rendered = self._rendered(messages, tools)
        head = self._rendered(messages[: len(messages) - count], tools, reply_comes=False)
        if rendered[: len(head)] == head:
            return self._closing + rendered[len(head) :]
        return self._kept(messages, len(messages) - count - 1, tools)

    def _kept(
        self, messages: Sequence[Message], index: int, tools: Sequence[ToolSchema]
    ) -> tuple[int, ...] | None:
        """The template's tokens after the turn of that reply, whatever it does to earlier turns.

        None for a reply of tool calls, which are text of the template.
        """
        if messages[index].get("tool_calls"):
            return None
        texts: list[Message] = [{"role": "assistant", "content": text} for text in "ab"]
        one, other = (
            self._rendered([*messages[:index], text, *messages[index + 1 :]], tools)
            for text in texts
        )
        after = _common_end(one, other)
        return after if len(after) < len(one) else None

    def _addition(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...] | None:
        """The tokens of the text added to the last reply; None if the template changes the prompt.

        Tokenized as a reply of its own: the tokens before it are those that were sampled.
        """
        reply: object = messages[-1]
        assert isinstance(reply, SampledMessage)
        if not reply.added:
            return ()
        added: Message = {"role": "assistant", "content": reply.added}
        before = len(messages) - 1
        is_whole = self.renders_whole or before < SHORT
        dialog = messages[:-1] if is_whole else _beginning(messages, before)
        head = self._rendered(dialog, tools)
        rendered = self._rendered([*dialog, added], tools)
        return rendered[len(head) :] if rendered[: len(head)] == head else None


def newest_sampled(messages: Sequence[Message]) -> int | None:
    """Index of the last reply whose token ids are known; None without one."""
    # From the end: only the newest reply has all earlier tokens in its prompt.
    for index in range(len(messages) - 1, -1, -1):
        if _sampled_ids(messages[index]):
            return index
    return None


def _is_continued(messages: Sequence[Message], index: int, tools: Sequence[ToolSchema]) -> bool:
    """True if tools, and the messages before that sampled reply, are still those of its prompt."""
    reply: object = messages[index]
    if not isinstance(reply, SampledMessage) or list(reply.tools) != list(tools):
        return False
    prompt, dialog = as_trail(reply.prompt), as_trail(messages)
    return len(prompt) == index == dialog.kept(prompt)


def _beginning(messages: Sequence[Message], end: int) -> list[Message]:
    """The messages up to the first one of the user, with the first words of each."""
    beginning: list[Message] = []
    for message in map(messages.__getitem__, range(end)):
        beginning.append({**message, "content": (message["content"] or "")[:SHOWN]})
        if message["role"] == "user":
            return beginning
    return beginning


def shortened(messages: Sequence[Message], index: int) -> list[Message]:
    """A long dialog with its beginning and its end alone, from the message at that index on.

    A turn of the user may change all of the turn before, from which thoughts are removed then.
    """
    if index < SHORT:
        return list(messages)
    beginning, start = _beginning(messages, index), index
    if any(is_observation(message) for message in messages[index + 1 :]):
        while start > len(beginning) and not is_observation(messages[start]):
            start -= 1
    return [*beginning, *messages[max(start, len(beginning)) :]]


def reply_before(messages: Sequence[Message], index: int) -> int:
    """Index of the reply before that one; 0 without one."""
    replies = (i for i in range(index - 1, 0, -1) if messages[i]["role"] == "assistant")
    return next(replies, 0)


def _sampled_ids(message: object) -> Trail[int]:
    ids = message.token_ids if isinstance(message, SampledMessage) else None
    return token_ids(()) if ids is None else ids


def _turn_end(render: Render) -> tuple[int, ...]:
    """The tokens that the template writes after an assistant's text.

    Found as the common end of two dialogs that differ only in that text.
    """
    question: Message = {"role": "user", "content": "?"}
    one, other = (
        tuple(render([question, {"role": "assistant", "content": text}], False)) for text in "ab"
    )
    return _common_end(one, other)


def _common_end(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one[::-1], other[::-1]))  # noqa: B905
    return tuple(token for token, _ in same)[::-1]
