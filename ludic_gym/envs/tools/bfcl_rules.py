"""Function calls by the rules of the Berkeley Function-Calling Leaderboard (Patil et al. 2025).

A possible answer names a function and, for each parameter, the values that are right; "" among them
allows to leave the parameter out.

>>> area = {"name": "area", "parameters": {"properties": {"side": {"type": "float"}}}}
>>> answers = [{"area": {"side": [2.5]}}]
>>> problem_of_calls([Call("area", {"side": 2.5})], [area], answers, "simple_python")
''
>>> problem_of_calls([Call("area", {"side": 3})], [area], answers, "simple_python")
"area: 3 is no right value of 'side'"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.tools.code_literals import literal, spelt

Function = Mapping[str, Any]
"""A function as a row has it: "name", "description", "parameters"."""
Answer = Mapping[str, Mapping[str, Sequence[Any]]]
"""Name of one function -> the right values of its parameters."""

# The type of a parameter in the rows -> that of its value in Python.
KINDS: Mapping[str, type] = {
    **dict.fromkeys(("string", "String", "char", "any"), str),
    **dict.fromkeys(("integer", "long", "byte", "short", "Bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("boolean", "Boolean"), bool),
    **dict.fromkeys(("array", "tuple", "Array", "ArrayList"), list),
    **dict.fromkeys(("dict", "HashMap"), dict),
}
# Values of these categories are texts of code.
LANGUAGES = {"simple_java": "java", "simple_javascript": "javascript"}
_IGNORED = re.compile(r"[ ,./\-_*^]")


def plain_name(name: str) -> str:
    """The name without points, which names of tools may not have."""
    return name.replace(".", "_")


def problem_of_calls(
    calls: Sequence[Call], functions: Sequence[Function], answers: Sequence[Answer], category: str
) -> str:
    """The reason why the calls are wrong; "" if they are right.

    Calls of a parallel category may come in any order. Texts are compared without case, spaces and
    the signs ,./-_*^, numbers by value.
    category: of the rows, such as "live_parallel"; it says in which language values are written.
    """
    if len(calls) != len(answers):
        return f"{len(answers)} calls are right, got {len(calls)}"
    by_name = {function["name"]: function for function in functions}
    language, left = LANGUAGES.get(category, ""), list(calls)
    for answer in answers:
        ((name, values),) = answer.items()
        problems = [_problem(call, by_name[name], values, language) for call in left]
        if "" not in problems:
            return problems[0]
        # The first that fits, as in the published program.
        del left[problems.index("")]
    return ""


def _problem(
    call: Call, function: Function, values: Mapping[str, Sequence[Any]], language: str
) -> str:
    """The reason why a call is wrong; "" if it is right."""
    name, parameters = function["name"], function["parameters"]
    if plain_name(call.name) != plain_name(name):
        return f"{call.name!r:.100} is not called, but {name!r} is"
    # Four live rows want a parameter that the function lacks, or that has no right value.
    needed = [
        key
        for key, right in values.items()
        if key in parameters["properties"]
        and right
        and (key in parameters.get("required", ()) or "" not in right)
    ]
    if missing := [key for key in needed if key not in call.arguments]:
        return f"{name}: {', '.join(missing)} must be given"
    for key, value in call.arguments.items():
        if key not in parameters["properties"] or key not in values:
            return f"{name}: no argument {key!r:.100} is wanted"
        schema = parameters["properties"][key]
        inner = schema["items"]["type"] if KINDS[schema["type"]] is list else ""
        if language and not isinstance(value, str):
            return f"{name}: {key!r} is a text of {language}, got {value!r:.100}"
        read = literal(value, schema["type"], inner, language) if language else value
        # Items of any type have none to be checked.
        item = KINDS[inner] if inner not in ("", "any") else None
        if not _is_right(read, KINDS[schema["type"]], item, values[key]):
            return f"{name}: {value!r:.100} is no right value of {key!r}"
    return ""


def _is_right(value: object, kind: type, inner: type | None, right: Sequence[Any]) -> bool:
    """True if the value is of the kind, or names a variable, and is one of the right ones."""
    value = _number(value, kind)
    # Where the right values are of another kind than the parameter, they name a variable.
    given = next((type(one) for one in right if one != ""), kind)
    if type(value) is not kind:
        return type(value) is given and value in right
    if inner is not None and not any(_holds(inner, value, one) for one in right):
        return False
    if given is not kind:
        return value in right
    if isinstance(value, dict):
        return any(one != "" and _is_right_dict(value, one) for one in right)
    if isinstance(value, list):
        items = [_number(item, inner or kind) for item in value]
        lists = [one for one in right if isinstance(one, list)]
        if inner is dict:
            return any(_are_right_dicts(items, one) for one in lists)
        return list(map(_plain, items)) in [list(map(_plain, one)) for one in lists]
    return _plain(value) in list(map(_plain, right))


def _number(value: object, kind: type) -> object:
    """The value, as a float if it is an integer where a float is wanted."""
    return float(value) if kind is float and type(value) is int else value


def _holds(inner: type, value: Any, right: object) -> bool:  # noqa: ANN401 - JSON
    """True if all items are of the inner kind, or of the kind of the right ones."""
    if not isinstance(right, list):
        return True
    given = next((type(one) for one in right if one != ""), None)
    return all(type(_number(item, inner)) in (inner, given) for item in value)


def _are_right_dicts(items: Sequence[object], right: Sequence[Any]) -> bool:
    pairs = zip(items, right, strict=False)
    return len(items) == len(right) and all(
        isinstance(item, dict) and _is_right_dict(item, one) for item, one in pairs
    )


def _is_right_dict(value: Mapping[str, Any], right: Mapping[str, Sequence[Any]]) -> bool:
    """True if each key has a right value, and those that lack may be left out."""
    return all(
        key in right and _plain(one) in list(map(_plain, right[key])) for key, one in value.items()
    ) and all(key in value or "" in options for key, options in right.items())


def _plain(value: object) -> object:
    """A text as it is compared; any other value as it is."""
    if not isinstance(value, str):
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')


def right_call(answer: Answer, functions: Sequence[Function], category: str) -> Call:
    """A call that a possible answer allows, with the first of the right values of each parameter.

    >>> sides = {"side": {"type": "float"}, "unit": {"type": "string"}}
    >>> area = {"name": "area", "parameters": {"properties": sides}}
    >>> right_call({"area": {"side": [2.5], "unit": ["", "m"]}}, [area], "simple_python").arguments
    {'side': 2.5}
    """
    ((name, values),) = answer.items()
    (parameters,) = [f["parameters"] for f in functions if f["name"] == name]
    properties, required = parameters["properties"], parameters.get("required", ())
    arguments = {
        key: _first(right)
        for key, right in values.items()
        if right and key in properties and (right[0] != "" or key in required)
    }
    if language := LANGUAGES.get(category):
        arguments = {
            key: spelt(value, properties[key]["type"], language) for key, value in arguments.items()
        }
    return Call(plain_name(name), arguments)


def _first(right: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
    """The first value that is right; parts of dicts that may be left out are."""
    value = next((one for one in right if one != ""), "")
    if isinstance(value, list):
        return [_first_dict(one) if isinstance(one, dict) else one for one in value]
    return _first_dict(value) if isinstance(value, dict) else value


def _first_dict(right: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {key: options[0] for key, options in right.items() if "" not in options}
