"""Prompts of a model: chat template, tools in its own format or in text, token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ludic_gym.errors import ConfigError
from ludic_gym.policies.tool_use import TextTools
from ludic_gym.prompts import ExactPrompts, newest_sampled
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.agents.replies import THINK, ReplyFormat
from ludic_train.models.chat_template import (
    cached_encode,
    encoded_chat,
    render_chat,
    with_parsed_arguments,
    written_chat,
)
from ludic_train.models.tool_calls import (
    CALL,
    CALL_END,
    THINK_END,
    call_format,
    loaded,
    tool_template,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Sets of tools whose prompts are kept; an agent has few.
REMEMBERED_TOOLS = 64
# As in the local server: no tokenizer has longer tokens on average.
MOST_CHARACTERS = 256
QUESTION: Message = {"role": "user", "content": "?"}


class Prompts:
    """Token ids of dialogs with tools, for the model of a tokenizer.

    A template that writes tools in the manner of Hermes, Qwen or Llama 3 gets them, and its calls
    are read back in its own format. For any other, tools, calls and results are text, exactly as
    `ToolUse(protocol=TextTools())` has them.
    max_positions: of the model; None for no limit.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_positions: int | None = None
    ) -> None:
        template = tool_template(tokenizer)
        self.tokenizer, self.max_positions = tokenizer, max_positions
        form = call_format(template)
        # Lists of calls follow a special token, which the texts of engines do not have.
        self.writes_tools = form in ("tagged", "bare")
        self._calls = form if self.writes_tools else "tagged"
        self._encode = cached_encode(tokenizer)
        self._thinks = THINK_END in template
        self._exact = lru_cache(REMEMBERED_TOOLS)(self._exact_with)
        self._asked = written_chat(tokenizer, [QUESTION])[0]
        # Two texts, to see that the template puts nothing but the text between its marks.
        first, second = (self._turn(Message(role="assistant", content=text)) for text in "ab")
        self._closing = first[1:]
        # Other templates write more before the text, as an empty thought.
        self._is_plain = first[:1] == "a" and second == f"b{self._closing}"

    def convert(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Message]:
        """A client's messages as the chat template takes them; a whole dialog, with its tools."""
        if self.writes_tools:
            return [with_parsed_arguments(message) for message in messages]
        found = text_messages(messages)
        if tools:
            instructions = TextTools().instructions(tools)
            own = found.pop(0)["content"] if found and found[0]["role"] == "system" else ""
            text = "\n\n".join(filter(None, (own, instructions)))
            found.insert(0, {"role": "system", "content": text})
        return found

    def token_ids(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], before: str = ""
    ) -> tuple[tuple[int, ...], str]:
        """Token ids of a converted dialog, those of sampled replies as sampled, and its text.

        before: text of the prompt of its last sampled reply, if known: the dialog is rendered once
        then, and only what is new is encoded. The text is "" where none can continue it.
        Raises ConfigError for a dialog that the template refuses, or that is far too long.
        """
        self.check_length(sum(len(message.get("content") or "") for message in messages))
        offered = tools if self.writes_tools else ()
        try:
            text, fence = written_chat(self.tokenizer, messages, tools=offered)
            ids = self._continued_ids(messages, text, fence, before)
            if ids is None:
                ids = self._exact(json.dumps(list(offered))).token_ids(messages)
        except (TypeError, UnicodeError, RecursionError, KeyError, AttributeError) as error:
            # Errors of a template that gets data of another kind than it expects.
            raise ConfigError(f"the chat template fails on this dialog: {error}") from error
        # A reply that is being continued has no end yet, at which the text could be cut.
        return ids, text if messages[-1]["role"] != "assistant" else ""

    def _continued_ids(
        self, messages: Sequence[Message], text: str, fence: str, before: str
    ) -> tuple[int, ...] | None:
        """As `ExactPrompts.token_ids`, from the dialog's text; None where that is not certain."""
        index = newest_sampled(messages)
        if index is None:
            return tuple(encoded_chat(self.tokenizer, text, fence, self._encode))
        # Without `_encode`, the ids of a text depend on what is before it.
        if self._encode is None or not before or not text.startswith(before):
            return None
        for turn in self._turns(messages[index]):
            end = len(before) + len(turn)
            if text.startswith(turn, len(before)) and self._is_boundary(text, end):
                rest = encoded_chat(self.tokenizer, text[end:], fence, self._encode)
                return (*self._exact("[]").turn_ids(messages[index]), *rest)
        return None

    def _turns(self, reply: Message) -> Iterator[str]:
        """Texts that the template may write for a reply, up to the end of its turn."""
        if self._is_plain and not (reply.get("tool_calls") or reply.get("reasoning_content")):
            yield f"{reply['content']}{self._closing}"
        yield self._turn(reply)

    def _turn(self, reply: Message) -> str:
        """The text that the template writes for a reply at the end of a dialog."""
        written, _ = written_chat(self.tokenizer, [QUESTION, reply], reply_comes=False)
        return written.removeprefix(self._asked)

    def _is_boundary(self, text: str, index: int) -> bool:
        """True if the ids of the text before the index do not depend on the text after it."""
        marks = tuple(self.tokenizer.all_special_tokens)
        return text.startswith(marks, index) or text.endswith(marks, 0, index)

    def encoded(self, text: str) -> tuple[int, ...]:
        """Token ids of a text as it is, in which no special token is special.

        Raises ConfigError for text that is not valid Unicode, or far too long.
        """
        self.check_length(len(text))
        try:
            return tuple(
                self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            )
        except (TypeError, UnicodeError) as error:
            raise ConfigError(f"{text[:100]!r} cannot be encoded: {error}") from error

    def text(self, ids: Sequence[int], *, with_specials: bool = False) -> str:
        """Text of token ids, special tokens left out."""
        return str(
            self.tokenizer.decode(
                list(ids),
                skip_special_tokens=not with_specials,
                clean_up_tokenization_spaces=False,
            )
        )

    def beginning(self, choice: str) -> str:
        """The beginning of a reply that must call a tool; "" where it need not.

        choice: "required", or the name of the function.
        """
        if choice in ("auto", "none"):
            return ""
        if self._calls == "bare":
            return '{"name": "' if choice == "required" else f'{{"name": "{choice}", "parameters": '
        begun = f'{CALL}\n{{"name": "'
        return begun if choice == "required" else f'{begun}{choice}", "arguments": '

    def reply_format(self, prompt_ids: Sequence[int], *, reads_calls: bool) -> ReplyFormat:
        """The format of the reply to a prompt."""
        in_thought = False
        if self._thinks:
            # A tag that is no token of its own takes a few, and a line break follows it.
            last = str(self.tokenizer.decode(list(prompt_ids[-4:]), skip_special_tokens=False))
            in_thought = last.rstrip().endswith(THINK)
        calls: Any = self._calls if reads_calls else "none"
        return ReplyFormat(calls=calls, thinks=self._thinks, in_thought=in_thought)

    def reply_message(
        self, text: str, content: str, reasoning: str, calls: Sequence[ToolCall]
    ) -> Message:
        """A sampled reply as the chat template takes it.

        text: all of it, for templates that know no tool calls.
        """
        if not self.writes_tools or not (calls or reasoning):
            return {"role": "assistant", "content": text}
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = message_calls(calls)
        return with_parsed_arguments(cast(Message, message))

    def check_length(self, characters: int) -> None:
        """Raise ConfigError for a text that cannot fit the positions, before it is encoded."""
        if self.max_positions is not None and characters > MOST_CHARACTERS * self.max_positions:
            raise ConfigError(
                f"a prompt of {characters} characters does not fit the model's "
                f"{self.max_positions} positions, its maximum context length"
            )

    def _exact_with(self, offered: str) -> ExactPrompts:
        tools: list[ToolSchema] = json.loads(offered)
        return ExactPrompts(
            lambda messages, reply_comes: render_chat(
                self.tokenizer,
                messages,
                reply_comes=reply_comes,
                tools=tools,
                encode=self._encode,
            )
        )


def message_calls(calls: Sequence[ToolCall]) -> list[Any]:
    """Tool calls in the format of messages."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def text_messages(messages: Sequence[Message]) -> list[Message]:
    """The dialog for a template without tools: calls and results as text."""
    found: list[Message] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message.get("content") or "")
            continue
        if results:
            found += TextTools().results((), results)
            results = []
        calls = "".join(map(_text_call, message.get("tool_calls") or ()))
        content = (message.get("content") or "") + calls
        found.append(cast(Message, {"role": message["role"], "content": content}))
    return found + (TextTools().results((), results) if results else [])


def _text_call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    value = {"name": function["name"], "arguments": loaded(function["arguments"])}
    return CALL + json.dumps(value) + CALL_END
