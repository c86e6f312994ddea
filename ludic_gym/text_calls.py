"""Replies as texts: thoughts, and tool calls in the formats of model families.

tagged  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, or <function=NAME> with
<parameter=KEY> inside: Hermes, Qwen
list    [TOOL_CALLS] and a list of such objects, or a name and its arguments: Mistral
bare    a reply of JSON objects alone, with "parameters", after <|python_tag|> or not: Llama 3
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ludic_gym.dialogs import UNREADABLE, is_object
from ludic_gym.reader import divided, untagged
from ludic_gym.types import ToolSchema

CALL, CALL_END = "<tool_call>", "</tool_call>"
CALLS, PYTHON = "[TOOL_CALLS]", "<|python_tag|>"
CallFormat = Literal["tagged", "list", "bare"]
_TAGGED = re.compile(rf"{CALL}(.*?)(?:{CALL_END}|\Z)", re.S)
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(\{.*\})\s*", re.S)
_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>", re.S)
_NAME = re.compile(r'"name"\s*:\s*"([\w.-]+)"')
_BEGUN = re.compile(r'\{\s*"name"\s*:\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFormat:
    """The format of a reply in a model's text.

    calls: of tool calls; "none" where no tools were offered.
    thinks: True takes a thought that begins the reply out of the text.
    in_thought: the prompt has opened one.
    """

    calls: CallFormat | Literal["none"] = "tagged"
    thinks: bool = False
    in_thought: bool = False

    def parts(
        self, text: str, tools: Sequence[ToolSchema] = ()
    ) -> tuple[str, str, list[tuple[str, str]]]:
        """Content, reasoning, and name and arguments of each tool call of a reply.

        White space next to a call or a thought belongs to no part. A call inside a thought is none.
        tools: their schemas give the types of <parameter=...>.
        """
        thought, rest = divided(text, opened=self.in_thought)
        # The blank line after a thought belongs to the tag; so it does in chat templates.
        said = rest.lstrip() if thought and self.thinks else rest
        content, calls = (
            (said, []) if self.calls == "none" else split_calls(said, self.calls, tools)
        )
        if self.thinks or self.in_thought:
            return content, untagged(thought), calls
        return thought + content, "", calls


def split_calls(
    text: str, form: CallFormat, tools: Sequence[ToolSchema] = ()
) -> tuple[str, list[tuple[str, str]]]:
    """The text without its tool calls, and name and arguments of each.

    A call that cannot be read has its whole text as arguments, and the name that it has, if any, or
    `UNREADABLE`. tools: their schemas give the types of <parameter=...>.

    >>> split_calls('I add. [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', "list")
    ('I add.', [('add', '{"a": 1}')])
    """
    if form == "tagged":
        return _tagged(text, tools)
    if form == "list":
        content, tag, rest = text.partition(CALLS)
        calls, is_call = (_listed(rest) if tag else None), bool(tag)
    else:
        content, rest = "", text.strip().removeprefix(PYTHON).lstrip()
        calls = _objects(rest)
        is_call = PYTHON in text or _BEGUN.match(rest) is not None
    if not calls and not is_call:
        return text, []
    return content.rstrip(), calls or [_unreadable(rest)]


def _unreadable(text: str) -> tuple[str, str]:
    """Name and arguments of a call that is neither JSON nor tags."""
    name = _NAME.search(text)
    return name[1] if name else UNREADABLE, text.strip()


def _json_call(body: str) -> tuple[str, str] | None:
    """Name and arguments of {"name": ..., "arguments": {...}}; None for anything else."""
    try:
        return _call_of(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _tagged_call(body: str, tools: Sequence[ToolSchema]) -> tuple[str, str] | None:
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


def _tagged(text: str, tools: Sequence[ToolSchema]) -> tuple[str, list[tuple[str, str]]]:
    """As `split_calls`; white space next to a call belongs to no text."""
    calls, pieces, end = list[tuple[str, str]](), list[str](), 0
    for match in _TAGGED.finditer(text):
        call = _json_call(match[1]) or _tagged_call(match[1], tools) or _unreadable(match[1])
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
        calls = [(part[1], part[2]) if part and is_object(part[2]) else None for part in parts]
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
