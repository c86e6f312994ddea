"""Tool calls in the texts of models, by family, and dialogs as templates that know tools want them.

tagged  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, or <function=NAME> with
<parameter=KEY> inside: Hermes, Qwen
list    [TOOL_CALLS] and a list of such objects, or a name and its arguments: Mistral
bare    a reply of JSON objects alone, with "parameters", after <|python_tag|> or not: Llama 3
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ludic_gym.errors import ConfigError
from ludic_gym.types import Completion, ToolCall, ToolSchema

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CALL, CALL_END = "<tool_call>", "</tool_call>"
CALLS, PYTHON = "[TOOL_CALLS]", "<|python_tag|>"
THINK_END = "</think>"
CallFormat = Literal["tagged", "list", "bare"]
_TAGGED = re.compile(rf"{CALL}(.*?)(?:{CALL_END}|\Z)", re.S)
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*\})\s*", re.S)
_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>", re.S)


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

    A call that cannot be read stays text. The tokens are those that were sampled, as they are.
    """
    text = completion.text
    if {CALL, CALLS, PYTHON} & set(tokenizer.all_special_tokens):
        # Texts of servers leave special tokens out.
        ids, specials = list(completion.completion_ids or ()), set(tokenizer.all_special_ids)
        while ids and ids[-1] in specials:
            ids.pop()
        text = str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    # A call inside a thought is none.
    thought, end, rest = text.rpartition(THINK_END)
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
        text=thought + end + content,
        tool_calls=tuple(calls),
        finish_reason="tool_calls" if reason == "stop" else reason,
    )


def split_calls(
    text: str, form: CallFormat, tools: Sequence[ToolSchema] = ()
) -> tuple[str, list[tuple[str, str]]]:
    """The text without its tool calls, and name and arguments of each.

    tools: their schemas give the types of <parameter=...>.

    >>> split_calls('I add. [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', "list")
    ('I add.', [('add', '{"a": 1}')])
    """
    if form == "tagged":
        return _tagged(text, tools)
    if form == "list":
        content, tag, rest = text.partition(CALLS)
        calls = _listed(rest) if tag else None
    else:
        content, calls = "", _objects(text.strip().removeprefix(PYTHON).lstrip())
    return (content.rstrip(), calls) if calls else (text, [])


def json_call(body: str) -> tuple[str, str] | None:
    """Name and arguments of {"name": ..., "arguments": {...}}; None for anything else."""
    try:
        return _call_of(json.loads(body))
    except (ValueError, RecursionError):
        return None


def tagged_call(body: str, tools: Sequence[ToolSchema]) -> tuple[str, str] | None:
    """Name and arguments of <function=NAME> with <parameter=KEY>; None for anything else."""
    tag = _FUNCTION.search(body)
    if tag is None:
        return None
    name, types = tag[1], dict[str, object]()
    for tool in tools:
        if tool["function"]["name"] == name:
            properties = tool["function"].get("parameters", {}).get("properties", {})
            types = {k: s.get("type") for k, s in properties.items() if isinstance(s, dict)}
    values = {
        key: _value(text.strip("\n"), types.get(key)) for key, text in _PARAMETER.findall(tag[2])
    }
    return name, json.dumps(values)


def loaded(arguments: object) -> object:
    """Arguments as an object; those that are none as they are."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _tagged(text: str, tools: Sequence[ToolSchema]) -> tuple[str, list[tuple[str, str]]]:
    """As `split_calls`; white space next to a call belongs to no text."""
    calls, pieces, end = list[tuple[str, str]](), list[str](), 0
    for match in _TAGGED.finditer(text):
        call = json_call(match[1]) or tagged_call(match[1], tools)
        if call is not None:
            pieces.append(text[end : match.start()].rstrip())
            end = match.end()
            calls.append(call)
    rest = text[end:]
    return "".join([*pieces, rest.strip() if calls else rest]), calls


def _listed(rest: str) -> list[tuple[str, str]] | None:
    """Calls after Mistral's tag; None for anything else."""
    try:
        value = json.loads(rest)
    except (ValueError, RecursionError):
        parts = [_NAMED.fullmatch(part) for part in rest.split(CALLS)]
        calls = [
            (part[1], part[2]) if part and isinstance(loaded(part[2]), dict) else None
            for part in parts
        ]
    else:
        calls = list(map(_call_of, value if isinstance(value, list) else [value]))
    return None if None in calls else [call for call in calls if call is not None]


def _objects(text: str) -> list[tuple[str, str]] | None:
    """Calls of a text that consists of JSON objects, with ";" between them; None for any other."""
    calls, decoder = list[tuple[str, str]](), json.JSONDecoder()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if (call := _call_of(value)) is None:
            return None
        calls.append(call)
        text = text[end:].lstrip("; \n")
    return calls


def _call_of(value: Any) -> tuple[str, str] | None:  # noqa: ANN401 - JSON
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    # Llama's templates ask for "parameters".
    arguments = value.get("arguments", value.get("parameters", {}))
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments)


def _value(text: str, kind: object) -> object:
    """The value of a parameter: a text as it is, anything else by its JSON if it has one."""
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
