"""JSON schemas of functions, and checks of values against them."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union

from ludic_gym.errors import ConfigError

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
    _, texts = described(inspect.getdoc(function) or "", tuple(parameters))
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


def described(docstring: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    r"""A docstring without its lines `name: text` about parameters, and those texts by name.

    names: of the parameters; other lines with a colon are kept. A text continues in the following
    lines that are indented further. Headings such as "Args:" are left out.

    >>> described("Find documents.\n\nArgs:\n    query: terms\n        to find", ["query"])
    ('Find documents.', {'query': 'terms to find'})
    """
    kept: list[str] = []
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
            kept += [] if line.strip().lower() in _HEADINGS else [line]
    return "\n".join(kept).strip(), texts


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
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, inner in value.items():
        if name not in known and others is False:
            yield f"{where} have no {name!r}; there are {', '.join(known) or 'none'}"
        expected = known.get(name, others)
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
