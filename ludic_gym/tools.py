"""Tools: typed functions that a model may call; what goes wrong becomes text for the model."""

from __future__ import annotations

import asyncio
import inspect
import json
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Union

from ludic_gym.clients.base import ToolSchema
from ludic_gym.concurrency import WorkerThread
from ludic_gym.errors import ConfigError
from ludic_gym.types import ToolCall

JSONSchema = dict[str, Any]
_SIMPLE_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_PYTHON_TYPES: dict[str, type | types.UnionType] = {
    "string": str,
    "integer": int,
    "number": float | int,
    "boolean": bool,
    "null": types.NoneType,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function, the schema that models see of it, and how long a call may take.

    A function that is not async runs on a thread, so a call that takes too long is left behind
    there: give such functions limits of their own.
    """

    function: Callable[..., object]
    schema: ToolSchema
    timeout_s: float

    @property
    def name(self) -> str:
        """The function's name, which is what models call it by."""
        name: str = self.schema["function"]["name"]
        return name


def as_tool(function: Callable[..., object], *, timeout_s: float = 30.0) -> Tool:
    """The function as a tool: its name, docstring and parameter types are what models see.

    Parameters are str, int, float, bool, None, Literal, list, dict with str keys, unions of
    these, or Any. Raises ConfigError for others, and for *args and **kwargs.
    """
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    schema = {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": inspect.getdoc(function) or "",
            "parameters": {
                "type": "object",
                "properties": {p.name: _parameter_schema(p, hints, function) for p in parameters},
                "required": [p.name for p in parameters if p.default is p.empty],
                "additionalProperties": False,
            },
        },
    }
    return Tool(function=function, schema=schema, timeout_s=timeout_s)


async def call_tool(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """What the tool returns, as text; or "Error: ..." about what went wrong, whatever it is."""
    if call.name not in tools:
        return f"Error: there is no tool {call.name!r}; there are {', '.join(sorted(tools))}"
    tool = tools[call.name]
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return f"Error: the arguments are not JSON: {error}"
    problem = _problem(arguments, tool.schema["function"]["parameters"], "the arguments")
    if problem:
        return f"Error: {problem}"
    try:
        return await asyncio.wait_for(_result(tool.function, arguments), tool.timeout_s)
    except TimeoutError:
        return f"Error: {call.name} took longer than {tool.timeout_s:g} s"


async def _result(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    if inspect.iscoroutinefunction(function):
        return await _text_of_awaited(function(**arguments))
    return await WorkerThread("ludic-tool").run(partial(_text_of_call, function, arguments))


async def _text_of_awaited(awaitable: Awaitable[object]) -> str:
    try:
        return _as_text(await awaitable)
    except Exception as error:
        return _as_error(error)


def _text_of_call(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    # A tool that leaves would end the whole program otherwise.
    try:
        return _as_text(function(**arguments))
    except (Exception, SystemExit) as error:
        return _as_error(error)


def _as_text(result: object) -> str:
    return result if isinstance(result, str) else json.dumps(result, default=str)


def _as_error(error: BaseException) -> str:
    return f"Error: {type(error).__name__}: {error}"


def _parameter_schema(
    parameter: inspect.Parameter, hints: Mapping[str, Any], function: Callable[..., object]
) -> JSONSchema:
    where = f"parameter {parameter.name!r} of {function.__name__}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(f"{where} takes any number of arguments; name them one by one")
    if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in hints:
        raise ConfigError(f"{where} needs a type, and a name to be given by")
    return _schema_of(hints[parameter.name], where)


def _schema_of(hint: object, where: str) -> JSONSchema:
    """The JSON schema of a type. Raises ConfigError for types that JSON does not have."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in (None, types.NoneType):
        return {"type": "null"}
    if isinstance(hint, type) and hint in _SIMPLE_TYPES:
        return {"type": _SIMPLE_TYPES[hint]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(argument, where) for argument in arguments]}
    if hint is list or origin is list:
        return {"type": "array", **_inner("items", arguments, where)}
    if hint is dict or (origin is dict and arguments[0] is str):
        return {"type": "object", **_inner("additionalProperties", arguments[1:], where)}
    raise ConfigError(f"{where} is of type {hint}, which JSON does not have")


def _inner(key: str, arguments: tuple[object, ...], where: str) -> JSONSchema:
    return {key: _schema_of(arguments[0], where)} if arguments else {}


def _problem(value: object, schema: JSONSchema, where: str) -> str:
    """Why the value does not fit the schema, "" if it does."""
    if "anyOf" in schema:
        problems = [_problem(value, option, where) for option in schema["anyOf"]]
        return problems[0] if all(problems) else ""
    if "enum" in schema:
        fits = any(type(value) is type(one) and value == one for one in schema["enum"])
        return "" if fits else f"{where} is one of {schema['enum']}, got {value!r}"
    kind = schema.get("type")
    if kind is None:
        return ""
    # True and False are integers to Python, not to JSON.
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, _PYTHON_TYPES[kind]):
        return f"{where} should be of type {kind}, got {value!r}"
    if isinstance(value, list):
        inner = [_problem(v, schema.get("items", {}), f"{where}[{i}]") for i, v in enumerate(value)]
        return next(filter(None, inner), "")
    return _object_problem(value, schema, where) if isinstance(value, dict) else ""


def _object_problem(value: dict[str, Any], schema: JSONSchema, where: str) -> str:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{where} lack {', '.join(missing)}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, inner in value.items():
        if name not in known and others is False:
            return f"{where} have no {name!r}; there are {', '.join(known) or 'none'}"
        problem = _problem(inner, known.get(name, others), f"{name!r}")
        if problem:
            return problem
    return ""
