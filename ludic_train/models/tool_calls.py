"""Tool calls of a tokenizer's model: the format of its chat template, and those in completions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ludic_gym.errors import ConfigError
from ludic_gym.reader import divided, opens_thought
from ludic_gym.text_calls import CALL, CALLS, PYTHON, CallFormat, split_calls
from ludic_gym.types import Completion, ToolCall, ToolSchema

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Tokens at the end of a prompt that may open a thought: a tag takes a few, and a line break.
OPENING_TOKENS = 8


def tool_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template with tools. Raises ConfigError for a tokenizer without one."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("tool_use") or template.get("default")
    if not template:
        raise ConfigError("the tokenizer has no chat template: use a chat model")
    return str(template)


def call_format(template: str) -> CallFormat | None:
    """The format in which a chat template has tool calls.

    None for one that writes no tools, and for formats that are not known here: the calls of such a
    model would pass for text.
    """
    if not re.search(r"\btools\b", template):
        return None
    if CALL in template:
        return "tagged"
    if CALLS in template:
        return "list"
    return "bare" if PYTHON in template or '"parameters"' in template else None


def with_calls(
    completion: Completion,
    tokenizer: PreTrainedTokenizerBase,
    form: CallFormat,
    tools: Sequence[ToolSchema],
) -> Completion:
    """The completion with the tool calls in its text, which then has the rest alone.

    The tokens are those that were sampled, as they are.
    """
    text = completion.text
    if {CALL, CALLS, PYTHON} & set(tokenizer.all_special_tokens):
        # Texts of servers leave special tokens out.
        ids, specials = list(completion.completion_ids or ()), set(tokenizer.all_special_ids)
        while ids and ids[-1] in specials:
            ids.pop()
        text = str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    opened = begins_in_thought(tokenizer, completion.prompt_ids or ())
    thought, rest = divided(text, opened=opened)
    content, pairs = split_calls(rest, form, tools)
    if not pairs:
        return completion
    # Nine letters or digits, as Mistral's template has them, which no later prompt has again.
    size = len(completion.prompt_ids or ())
    calls = [
        ToolCall(id=f"{size % 10**6:06d}{i:03d}", name=name, arguments=arguments)
        for i, (name, arguments) in enumerate(pairs)
    ]
    reason = completion.finish_reason
    return replace(
        completion,
        text=thought + content,
        tool_calls=tuple(calls),
        finish_reason="tool_calls" if reason == "stop" else reason,
    )


def begins_in_thought(tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int]) -> bool:
    """True if the prompt has opened a thought, so that the reply begins inside it."""
    last = tokenizer.decode(list(prompt_ids[-OPENING_TOKENS:]))
    return opens_thought(str(last))
