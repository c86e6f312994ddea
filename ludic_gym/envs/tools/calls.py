"""Tool calls written as JSON in a reply, their schemas and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ludic_gym.reader import without_thought
from ludic_gym.tools.tool import (
    JSONSchema,
    docstring_parts,
    json_number,
    parameters_schema,
    problem_of,
    shorten,
)

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.S)
_FENCED = re.compile(r"```[ \t]*(?:json|tool_calls?)?(?=[\s{\[])(.*?)```", re.S | re.I)
_LINE_START = re.compile(r"^[ \t]*(?=[{\[])", re.M)
_DECODER = json.JSONDecoder(parse_float=json_number)
FORM = '{"name": ..., "arguments": {...}}'


@dataclass(frozen=True, slots=True)
class Call:
    """A function's name and its arguments."""

    name: str
    arguments: Mapping[str, Any]

    def as_json(self) -> str:
        """The call as text."""
        return json.dumps({"name": self.name, "arguments": dict(self.arguments)})


Schemas = Mapping[str, tuple[str, JSONSchema]]
"""Purpose and parameters of tools, by name."""


def schemas_of(functions: Iterable[Callable[..., object]]) -> Schemas:
    """The schemas of functions, from their types and docstrings.

    functions: methods are bound to an instance, so that they have no `self`.
    """
    schemas = {}
    for function in functions:
        schema = parameters_schema(function)
        purpose, _ = docstring_parts(function.__doc__ or "", tuple(schema["properties"]))
        schemas[function.__name__] = purpose, schema
    return schemas


def listed(schemas: Schemas) -> str:
    """The tools for a prompt, one in each line."""
    return "\n".join(
        json.dumps({"name": name, "description": purpose, "parameters": schema})
        for name, (purpose, schema) in schemas.items()
    )


def problem_with(call: Call, schemas: Schemas, noun: str = "tool") -> str:
    """The reason why the call is not valid; "" if it is."""
    if call.name not in schemas:
        return f"there is no {noun} {call.name!r:.100}; there are {', '.join(schemas)}"
    return shorten(problem_of(call.arguments, schemas[call.name][1], "the arguments"), 500)


def one_call(text: str, schemas: Schemas) -> tuple[Call, str]:
    """The one call of a reply, and its error ("" for a valid call)."""
    calls, problem = calls_in(text)
    if problem or len(calls) != 1:
        return Call("", {}), problem or f"a reply has one call, got {len(calls)}"
    return calls[0], problem_with(calls[0], schemas)


def result_of(owner: object, call: Call) -> str:
    """The result of a valid call of a method; "Error: ..." where the state does not permit it."""
    try:
        return str(getattr(owner, call.name)(**call.arguments))
    # Rules of a world are part of its task: a broken one is a result, and no fault of the program.
    except (ValueError, ArithmeticError) as error:
        return f"Error: {error}"


def calls_in(text: str) -> tuple[list[Call], str]:
    r"""The calls in a reply, and its error ("" for valid calls, which may be none).

    The reply is a call, a list of calls, one of these in a code block or on lines of its own with
    text around them, or calls in <tool_call> tags. Names and arguments are not checked.
    """
    # A thought may contain drafts of calls.
    said = without_thought(text)
    parts = _TAGGED.findall(said) or [said]
    calls = list[Call]()
    for part in parts:
        try:
            value = _value_in(part)
        except (ValueError, RecursionError) as error:
            return [], f"that is not JSON ({error}); a tool call is {FORM}"
        for one in value if isinstance(value, list) else [value]:
            call = _call(one)
            if call is None:
                return [], f"a tool call is {FORM}"
            calls.append(call)
    return calls, ""


def _value_in(text: str) -> object:
    """The JSON in a code block, else that of the text. Raises ValueError where there is none."""
    part = (_FENCED.findall(text) or [text])[-1].strip().strip("`*.").strip()
    try:
        return _DECODER.decode(part)
    except ValueError as error:
        values = _on_own_lines(part)
        # Of two values it would be a guess which one is meant.
        if len(values) != 1:
            raise error
        return values[0]


def _on_own_lines(text: str) -> list[object]:
    """Values that begin a line and end one; [] where a line begins like one and is none."""
    values, end = list[object](), 0
    for start in _LINE_START.finditer(text):
        if start.end() < end:
            continue
        try:
            value, end = _DECODER.raw_decode(text, start.end())
        except ValueError:
            return []
        # More than one is refused by the caller: a text of a thousand of them is not read on.
        if values or text[end:].partition("\n")[0].strip():
            return []
        values.append(value)
    return values


def _call(value: object) -> Call | None:
    """The call that parsed JSON is; None if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    # `"arguments": null` and a missing key are common for functions without parameters.
    arguments = {} if arguments is None else arguments
    return Call(value["name"], arguments) if isinstance(arguments, dict) else None
