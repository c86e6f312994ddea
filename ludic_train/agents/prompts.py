"""Prompts and replies of a model: chat template, tools in its own format or in text, token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ludic_gym.dialogs import is_object, message_calls
from ludic_gym.errors import ConfigError, PromptTooLong
from ludic_gym.policies.tool_use import TextTools
from ludic_gym.prompts import ExactPrompts
from ludic_gym.text_calls import CALL, CALL_END, ReplyFormat
from ludic_gym.trail import Trail
from ludic_gym.types import Message, ToolCall, ToolSchema
from ludic_train.models.chat_profile import chat_profile, text_ids
from ludic_train.models.chat_template import render_chat, with_parsed_arguments
from ludic_train.models.tool_calls import begins_in_thought, tool_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# No tokenizer has longer tokens on average. A text that is far too long is not encoded, because
# that would block all other requests.
MOST_CHARACTERS = 256


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
        form = chat_profile(tokenizer).tools
        # Lists of calls follow a special token, which the texts of engines do not have.
        self.writes_tools = form in ("tagged", "bare")
        self._calls = form if self.writes_tools else "tagged"
        self._thinks = "</think>" in template
        self._exact = ExactPrompts(self._rendered)

    def convert(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Message]:
        """A client's messages as the chat template takes them; a whole dialog, with its tools."""
        if self.writes_tools:
            return [with_parsed_arguments(message) for message in messages]
        dialog = text_messages(messages)
        if tools:
            instructions = TextTools().instructions(tools)
            system = dialog.pop(0)["content"] if dialog and dialog[0]["role"] == "system" else ""
            text = "\n\n".join(filter(None, (system, instructions)))
            dialog.insert(0, {"role": "system", "content": text})
        return dialog

    def token_ids(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> Trail[int]:
        """Token ids of a converted dialog, those of sampled replies as sampled.

        Raises ConfigError for a dialog that the template refuses, PromptTooLong for one that is far
        too long.
        """
        self.check_length(sum(len(message.get("content") or "") for message in messages))
        try:
            return self._exact.token_ids(messages, tools if self.writes_tools else ())
        except (TypeError, UnicodeError, RecursionError, KeyError, AttributeError) as error:
            # Errors of a template that gets data of another kind than it expects.
            raise ConfigError(f"the chat template fails on this dialog: {error}") from error

    def check(self, dialog: Sequence[Message]) -> None:
        """Check the last prompt of a session, as `ExactPrompts` does."""
        self._exact.check(dialog)

    def encoded(self, text: str) -> tuple[int, ...]:
        """Token ids of a text as it is, in which no control token is one."""
        return tuple(text_ids(self.tokenizer, text))

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
        in_thought = self._thinks and begins_in_thought(self.tokenizer, prompt_ids)
        calls: Any = self._calls if reads_calls else "none"
        return ReplyFormat(calls=calls, thinks=self._thinks, in_thought=in_thought)

    def reply_message(
        self, text: str, content: str, reasoning: str, calls: tuple[ToolCall, ...]
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
        """Raise PromptTooLong for a text that cannot fit the positions, before it is encoded."""
        if self.max_positions is not None and characters > MOST_CHARACTERS * self.max_positions:
            raise PromptTooLong(
                f"a prompt of {characters} characters does not fit the model's "
                f"{self.max_positions} positions, its maximum context length"
            )

    def _rendered(
        self, messages: Sequence[Message], reply_comes: bool, tools: Sequence[ToolSchema] = ()
    ) -> list[int]:
        return render_chat(self.tokenizer, messages, reply_comes=reply_comes, tools=tools)


def text_messages(messages: Sequence[Message]) -> list[Message]:
    """The dialog for a template without tools: calls and results as text."""
    dialog: list[Message] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message.get("content") or "")
            continue
        if results:
            dialog += TextTools().results((), results)
            results = []
        calls = "".join(map(_text_call, message.get("tool_calls") or ()))
        content = (message.get("content") or "") + calls
        dialog.append(cast(Message, {"role": message["role"], "content": content}))
    return dialog + (TextTools().results((), results) if results else [])


def _text_call(call: Mapping[str, Any]) -> str:
    name, text = call["function"]["name"], call["function"]["arguments"]
    value = {"name": name, "arguments": json.loads(text) if is_object(text) else text}
    return CALL + json.dumps(value) + CALL_END
