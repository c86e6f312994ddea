"""Literals of Java and JavaScript, and calls in Python, which are read and not run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ludic_gym.envs.tools.calls import Call

# Of a literal, whose quotes are looked for at each of its signs, and of a reply.
LONGEST_LITERAL, LONGEST = 2_000, 20_000
_INTEGER, _FLOAT = r"-?\d+", r"-?\d+(\.\d+)?([eE][+-]?\d+)?"
_NUMBERS: Mapping[str, Mapping[str, str]] = {
    "java": {
        **dict.fromkeys(("integer", "short", "byte"), _INTEGER),
        "long": f"{_INTEGER}[lL]",
        "float": f"{_FLOAT}[fF]",
        "double": _FLOAT,
    },
    "javascript": {"integer": _INTEGER, "float": _FLOAT, "Bigint": f"{_INTEGER}n"},
}
_ANY_NUMBER = re.compile(rf"({_FLOAT})[lLfFn]?")
# The opening and closing of lists and tables.
_LISTS: Mapping[str, tuple[str, ...]] = {
    "ArrayList": (
        r"new\s+ArrayList<\w*>\(\s*Arrays\.asList\((.*)\)\s*\)",
        r"new\s+ArrayList<\w*>\(()\)",
    ),
    "Array": (r"new\s+\w+\[\]\s*\{(.*)\}",),
    "array": (r"\[(.*)\]", r"new\s+Array\((.*)\)"),
}
_PUT = re.compile(r"put\((.*)\)", re.S)
_TABLE = re.compile(r"new\s+HashMap<[^>]*>\s*\(\)\s*(?:\{\{(.*)\}\})?", re.S)
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", re.S)


def literal(text: str, kind: str, inner: str, language: str) -> object:
    """The value of a literal; the text itself if it is none of that type, such as a variable.

    kind: type of the parameter, such as "ArrayList". inner: type of the items of a list, or "".
    language: "java" or "javascript".

    >>> literal("new ArrayList<Long>(Arrays.asList(1L, 2L))", "ArrayList", "long", "java")
    [1, 2]
    >>> literal("{key: 'value'}", "dict", "", "javascript")
    {'key': 'value'}
    """
    text = text.strip()
    if len(text) > LONGEST_LITERAL:
        return text
    if kind.lower() == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind in _NUMBERS[language]:
        return _number(text) if re.fullmatch(_NUMBERS[language][kind], text) else text
    if kind == "String" and language == "javascript":
        return text[1:-1] if _QUOTED.fullmatch(text) else text
    if kind in _LISTS:
        found = next(filter(None, (re.fullmatch(p, text, re.S) for p in _LISTS[kind])), None)
        return text if found is None else [_item(one, inner) for one in parts_of(found[1])]
    if kind == "HashMap":
        table = _TABLE.fullmatch(text)
        puts = [_PUT.fullmatch(one) for one in parts_of((table[1] or "") if table else "", ";")]
        pairs = [tuple(parts_of(put[1])) for put in puts if put]
        is_whole = table is not None and len(pairs) == len(puts)
        return _dict(pairs) if is_whole and all(len(pair) == 2 for pair in pairs) else text
    if kind == "dict" and text[:1] == "{" and text[-1:] == "}":
        pairs = [tuple(parts_of(one, ":")) for one in parts_of(text[1:-1])]
        return _dict(pairs) if all(len(pair) == 2 for pair in pairs) else text
    return text


def _item(text: str, inner: str) -> object:
    value = _any_literal(text)
    return float(value) if inner == "float" and type(value) is int else value


def _dict(pairs: Sequence[Sequence[str]]) -> dict[str, object]:
    return {str(_any_literal(key)): _any_literal(value) for key, value in pairs}


def _any_literal(text: str) -> object:
    """A literal of any type, of a list of these or of an object; the text itself for others."""
    text = text.strip()
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    if text[:1] == "[" and text[-1:] == "]":
        return [_any_literal(one) for one in parts_of(text[1:-1])]
    if text in ("true", "false"):
        return text == "true"
    return _number(text) if _ANY_NUMBER.fullmatch(text) else text


def _number(text: str) -> float:
    found = _ANY_NUMBER.fullmatch(text)
    assert found is not None, "the callers match"
    is_float = found[2] or found[3] or text[-1] in "fF"
    return float(found[1]) if is_float else int(found[1])


def parts_of(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that stand neither in quotes nor in brackets.

    >>> parts_of("a, (b, c), 'd, e'")
    ['a', '(b, c)', "'d, e'"]
    """
    return [part for part in map(str.strip, _split(text, separator)) if part]


def _split(text: str, separator: str) -> Iterator[str]:
    depth, start, place = 0, 0, 0
    while place < len(text):
        sign = text[place]
        if quoted := _QUOTED.match(text, place):
            place = quoted.end()
            continue
        depth += (sign in "([{") - (sign in ")]}")
        if sign == separator and depth == 0:
            yield text[start:place]
            start = place + 1
        place += 1
    yield text[start:]


def spelt(value: Any, kind: str, language: str) -> str:  # noqa: ANN401 - JSON
    """The literal of a value, which `literal` reads.

    >>> spelt(["a", True], "ArrayList", "java")
    'new ArrayList<Object>(Arrays.asList("a", true))'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and language == "java":
        items = ", ".join(map(_spelt_item, value))
        if kind == "Array":
            return f"new Object[]{{{items}}}"
        return f"new ArrayList<Object>(Arrays.asList({items}))"
    if isinstance(value, dict) and language == "java":
        puts = "".join(f'put("{key}", {_spelt_item(one)}); ' for key, one in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts}}}}}"
    ends = {"long": "L", "float": "f"} if language == "java" else {"Bigint": "n"}
    return json.dumps(value) + ends.get(kind, "")


def _spelt_item(value: object) -> str:
    return json.dumps(value)


_CONSTANTS = {"true": True, "false": False, "null": None}


def python_calls(text: str, parameters: Mapping[str, Sequence[str]]) -> list[Call] | None:
    """The calls in Python's syntax, alone or in a list; None for any other text.

    parameters: names of the parameters of the functions, for arguments without one. An argument
    that is no literal is its text.

    >>> calls = python_calls("[sort('notes.txt'), cd(folder='..')]", {"sort": ["file_name"]})
    >>> [call.arguments for call in calls]
    [{'file_name': 'notes.txt'}, {'folder': '..'}]
    """
    if len(text) > LONGEST:
        return None
    try:
        body = ast.parse(text.strip(), mode="eval").body
    # Deep nesting ends in one of the last two.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    calls = [_python_call(node, parameters) for node in nodes]
    return None if None in calls else [call for call in calls if call is not None]


def _python_call(node: ast.expr, parameters: Mapping[str, Sequence[str]]) -> Call | None:
    if not isinstance(node, ast.Call) or any(one.arg is None for one in node.keywords):
        return None
    name = ast.unparse(node.func)
    names = parameters.get(name, ())
    if len(node.args) > len(names):
        return None
    arguments = {key: _python_value(one) for key, one in zip(names, node.args, strict=False)}
    return Call(name, arguments | {str(k.arg): _python_value(k.value) for k in node.keywords})


def _python_value(node: ast.expr) -> Any:  # noqa: ANN401 - any literal
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    try:
        # JSON has no tuples, sets and bytes.
        return json.loads(json.dumps(ast.literal_eval(node)))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return ast.unparse(node)
