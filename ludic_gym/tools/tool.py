"""Tools: typed functions with a JSON schema, called by models."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from ludic_gym.concurrency import WorkerThread
from ludic_gym.dialogs import UNREADABLE
from ludic_gym.errors import ClientError, ConfigError, EpisodeError, SandboxError
from ludic_gym.types import ToolCall, ToolSchema

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
# Integers above it have no exact float, so that 1e300 stays what it is.
_EXACT_FLOATS = 2**53
_HEADINGS = ("args:", "arguments:", "parameters:")


def parameters_schema(function: Callable[..., object]) -> JSONSchema:
    """The schema of a function's parameters, with their descriptions from its docstring.

    A parameter without a default is required. Raises ConfigError for types that JSON does not have,
    and for *args and **kwargs.

    >>> def search(query: str, limit: int = 3): "query: terms to find"
    >>> schema = parameters_schema(search)
    >>> schema["properties"]["query"], schema["required"]
    ({'type': 'string', 'description': 'terms to find'}, ['query'])
    """
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    _, texts = docstring_parts(inspect.getdoc(function) or "", tuple(parameters))
    properties = {}
    for name, parameter in parameters.items():
        schema = _parameter_schema(parameter, hints, function)
        properties[name] = {**schema, "description": texts[name]} if name in texts else schema
    return {
        "type": "object",
        "properties": properties,
        "required": [p.name for p in parameters.values() if p.default is p.empty],
        # A misspelled argument becomes an error for the model, instead of a default.
        "additionalProperties": False,
    }


def docstring_parts(docstring: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    r"""A docstring without its lines `name: text` about parameters, and those texts by name.

    names: of the parameters; other lines with a colon are kept. A text continues in the following
    lines that are indented further. Headings such as "Args:" are left out.

    >>> docstring_parts("Find documents.\n\nArgs:\n    query: terms\n        to find", ["query"])
    ('Find documents.', {'query': 'terms to find'})
    """
    lines: list[str] = []
    texts: dict[str, str] = {}
    current, current_indent = "", 0
    for line in docstring.splitlines():
        indent = len(line) - len(line.lstrip())
        # With a type in brackets after the name too, as docstrings in Google's style have it.
        start = re.match(r"\s*(\w+)(?: \([^)]*\))?: (.+)", line)
        if start and start[1] in names:
            current, current_indent = start[1], indent
            texts[current] = start[2].strip()
        elif current and line.strip() and indent > current_indent:
            texts[current] += f" {line.strip()}"
        else:
            current = ""
            lines += [] if line.strip().lower() in _HEADINGS else [line]
    return "\n".join(lines).strip(), texts


def json_number(text: str) -> float:
    """A number of JSON that is written with a point or an exponent; an int where it is a whole one.

    JSON has one type of numbers, and models write 2.0 for an integer.

    >>> json.loads('[2.0, 2e3, 2.5, 1e300]', parse_float=json_number)
    [2, 2000, 2.5, 1e+300]
    """
    value = float(text)
    return int(value) if abs(value) < _EXACT_FLOATS and value.is_integer() else value


def problem_of(value: object, schema: JSONSchema, where: str) -> str:
    """The first reason why the value does not fit the schema, "" if it fits.

    value: parsed JSON. where: its name in the reason, such as "the arguments".
    Keywords and types that are not known here are ignored, so that a server's schema of any version
    works.

    >>> problem_of({"limit": "3"}, {"properties": {"limit": {"type": "integer"}}}, "the arguments")
    "'limit' should be of type integer, got '3'"
    >>> problem_of([1, 2], {"type": "array", "items": {"type": "integer"}}, "limits")
    ''
    """
    # A value without a schema may be nested too deeply for recursion, so it is not entered.
    if not schema:
        return ""
    if "anyOf" in schema:
        problems = [problem_of(value, _known(option), where) for option in schema["anyOf"]]
        return problems[0] if problems and all(problems) else ""
    if "enum" in schema:
        # By type too: to Python, 1 equals True and 1.0.
        fits = any(type(value) is type(one) and value == one for one in schema["enum"])
        return "" if fits else f"{where} is one of {schema['enum']}, got {value!r}"
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_known = bool(kinds) and all(kind in _PYTHON_TYPES for kind in kinds)
    if is_known and not any(_is_a(value, kind) for kind in kinds):
        return f"{where} should be of type {' or '.join(kinds)}, got {value!r}"
    return next(filter(None, _inner_problems(value, schema, where)), "")


def _is_a(value: object, kind: str) -> bool:
    """True if a value is of that type of JSON; an integer is a number too."""
    # In Python, but not in JSON, True and False are integers, so `isinstance` is not enough.
    return isinstance(value, bool) == (kind == "boolean") and isinstance(value, _PYTHON_TYPES[kind])


def _inner_problems(value: object, schema: JSONSchema, where: str) -> Iterator[str]:
    """The reasons why members of a list or an object do not fit."""
    if isinstance(value, list):
        items = _known(schema.get("items"))
        yield from (problem_of(v, items, f"{where}[{i}]") for i, v in enumerate(value))
    if not isinstance(value, dict):
        return
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        yield f"{where} lack {', '.join(missing)}"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, inner in value.items():
        if name not in properties and others is False:
            yield f"{where} have no {name!r}; there are {', '.join(properties) or 'none'}"
        expected = properties.get(name, others)
        yield problem_of(inner, _known(expected), f"{name!r}")


def _known(schema: object) -> JSONSchema:
    """The schema; {} for True and False, which JSON Schema has too, and for none."""
    return schema if isinstance(schema, dict) else {}


def _parameter_schema(
    parameter: inspect.Parameter, hints: Mapping[str, Any], function: Callable[..., object]
) -> JSONSchema:
    where = f"parameter {parameter.name!r} of {function.__name__}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(f"{where} takes any number of arguments; name them one by one")
    if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in hints:
        raise ConfigError(f"{where} needs a type, and must be usable as a keyword")
    return schema_of(hints[parameter.name], where)


def schema_of(hint: object, where: str) -> JSONSchema:
    """The JSON schema of a type.

    hint: an evaluated annotation. where: the parameter, for the error.
    Raises ConfigError for types that JSON does not have.

    >>> schema_of(list[int] | None, "x")
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint is types.NoneType:
        return {"type": "null"}
    if isinstance(hint, type) and hint in _SIMPLE_TYPES:
        return {"type": _SIMPLE_TYPES[hint]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(argument, where) for argument in arguments]}
    if hint is list or origin is list:
        return {"type": "array", **_inner("items", arguments, where)}
    if hint is dict or (origin is dict and arguments[0] is str):
        return {"type": "object", **_inner("additionalProperties", arguments[1:], where)}
    raise ConfigError(f"{where} is of type {hint}, which JSON does not have")


def _inner(key: str, arguments: tuple[object, ...], where: str) -> JSONSchema:
    """The schema of the members of a list or dict, if they have a type."""
    return {key: schema_of(arguments[0], where)} if arguments else {}


TIMEOUT_S = 30.0
OUTPUT_LIMIT = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function, its schema for models, and the limits of a call.

    A function that is not async runs on a thread. A call that exceeds its time limit keeps running
    there, so give such functions limits of their own.

    function: takes the schema's properties as keywords; a result that is no text becomes JSON.
    timeout_s: seconds for a call, after which the model gets an error.
    output_limit: characters of a result; the middle of a longer one is left out.
    """

    function: Callable[..., object]
    schema: ToolSchema
    timeout_s: float = TIMEOUT_S
    output_limit: int = OUTPUT_LIMIT

    @property
    def name(self) -> str:
        """The function's name, by which models call it."""
        name: str = self.schema["function"]["name"]
        return name


def as_tool(
    function: Callable[..., object],
    *,
    timeout_s: float = TIMEOUT_S,
    output_limit: int = OUTPUT_LIMIT,
) -> Tool:
    """The function as a tool: models get its name, docstring and parameter types.

    timeout_s, output_limit: see Tool.
    A line `name: text` of the docstring describes that parameter. Parameters are str, int, float,
    bool, None, Literal, list, dict with str keys, unions of these, or Any. Raises ConfigError for
    others, and for *args and **kwargs.

    >>> def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.
    ...
    ...     a: the first
    ...     '''
    ...     return a + b
    >>> as_tool(add).schema["function"]["description"]
    'Add two numbers.'
    """
    parameters = parameters_schema(function)
    description, _ = docstring_parts(
        inspect.getdoc(function) or "", tuple(parameters["properties"])
    )
    schema = tool_schema(function.__name__, description, parameters)
    return Tool(function=function, schema=schema, timeout_s=timeout_s, output_limit=output_limit)


def tools_by_name(tools: Sequence[Tool | Callable[..., object]]) -> Mapping[str, Tool]:
    """The tools, made from functions where they are some. Raises ConfigError for equal names."""
    made = [tool if isinstance(tool, Tool) else as_tool(tool) for tool in tools]
    names = [tool.name for tool in made]
    if len(set(names)) < len(names):
        raise ConfigError(f"tools need different names, got {names}")
    return dict(zip(names, made, strict=True))


def tool_schema(name: str, description: str, parameters: dict[str, Any]) -> ToolSchema:
    """A tool in the format of chat APIs.

    parameters: a JSON schema of type "object".
    """
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


async def call_tool(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """Run a tool call; the result as text, or "Error: ..." for any failure.

    tools: by name. call: its arguments are JSON as the model wrote it, checked against the schema
    before the function runs.
    Raises the EpisodeError, ClientError or SandboxError of a tool: what a model does without its
    tool says nothing about it.

    >>> def add(a: int, b: int = 1) -> str:
    ...     '''Add two numbers.'''
    ...     return str(a + b)
    >>> for arguments in ('{"a": 2}', '{"a": "x"}'):
    ...     call = ToolCall(id="1", name="add", arguments=arguments)
    ...     print(asyncio.run(call_tool({"add": as_tool(add)}, call)))
    3
    Error: 'a' should be of type integer, got 'x'
    """
    if call.name == UNREADABLE:
        text = f"Error: the call is not a name and JSON arguments: {call.arguments}"
        return shorten(text, OUTPUT_LIMIT)
    if call.name not in tools:
        return f"Error: there is no tool {call.name!r}; there are {', '.join(sorted(tools))}"
    tool = tools[call.name]
    try:
        # Some models leave them out where a tool has none, or write null.
        arguments = json.loads(call.arguments or "{}", parse_float=json_number)
        arguments = {} if arguments is None else arguments
    except (ValueError, RecursionError) as error:
        return f"Error: the arguments are not JSON: {error}"
    problem = problem_of(arguments, tool.schema["function"]["parameters"], "the arguments")
    if problem:
        return shorten(f"Error: {problem}", tool.output_limit)
    # A tool may raise anything: `gather` returns the error as a value, which the model can read.
    outcome = asyncio.gather(_outcome(tool.function, arguments), return_exceptions=True)
    try:
        async with asyncio.timeout(tool.timeout_s):
            (result,) = await outcome
    except TimeoutError:
        return f"Error: {call.name} took longer than {tool.timeout_s:g} s"
    if isinstance(result, EpisodeError | ClientError | SandboxError):
        raise result
    if isinstance(result, BaseException):
        result = f"Error: {type(result).__name__}: {result}"
    return shorten(result, tool.output_limit)


def shorten(text: str, limit: int) -> str:
    r"""The text, with its middle left out where it has more than `limit` characters.

    >>> shorten("0123456789", 6)
    '0123\n[4 characters left out]\n89'
    """
    if len(text) <= limit:
        return text
    # Two thirds from the start: a table begins with its header, a traceback ends with its error.
    head, tail = text[: limit - limit // 3], text[len(text) - limit // 3 :]
    return f"{head}\n[{len(text) - limit} characters left out]\n{tail}"


async def _outcome(
    function: Callable[..., object], arguments: Mapping[str, Any]
) -> str | SystemExit:
    """The result as text; an exit as a value, because a task would end the program with it."""
    try:
        if inspect.iscoroutinefunction(function):
            return _as_text(await function(**arguments))
        # Not the default executor, whose threads a call that never returns would use up.
        return await WorkerThread("ludic-tool").run(lambda: _as_text(function(**arguments)))
    except SystemExit as error:
        return error


def _as_text(result: object) -> str:
    """The result itself if it is a text, else as JSON, with `str` for what JSON lacks."""
    return result if isinstance(result, str) else json.dumps(result, default=str)
