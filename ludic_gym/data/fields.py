r"""Fields of a row by paths and templates.

    fields = {"question": "{context}\n\n{question}", "answer": "reward_model.ground_truth"}
    mapped(row, fields).fields["answer"]

A path is a column, or several names and indices with dots between them. A template is a text with
paths in braces. Nothing of them is executed, and no attribute of a value is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.data.row import Row, text_field
from ludic_gym.errors import ConfigError, DataError

Fields = Mapping[str, str | Sequence[str]]
"""Name of a field that an environment reads -> its path, its template, or a list of paths."""

_MISSING = object()
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def checked_fields(fields: Fields, names: Sequence[str] = ()) -> dict[str, str | tuple[str, ...]]:
    """The mapping, with tuples in place of lists.

    names: those that an environment reads; () for any.
    Raises ConfigError for another name, a value of another type, or a brace without its partner.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise ConfigError(
            f'fields= maps names to columns, such as {{"question": "problem"}}, got {fields!r}'
        )
    checked: dict[str, str | tuple[str, ...]] = {}
    for name, place in fields.items():
        if names and name not in names:
            raise ConfigError(f"fields= has {name!r}; the fields are {', '.join(names)}")
        paths = (place,) if isinstance(place, str) else place
        if not isinstance(paths, Sequence) or not all(isinstance(p, str) and p for p in paths):
            raise ConfigError(
                f"fields[{name!r}] is a path, a template or a list of paths, got {place!r}"
            )
        for path in paths:
            if set(_BRACES.sub("", path)) & set("{}"):
                raise ConfigError(
                    f"fields[{name!r}]={path!r} has a brace without its partner; a template is "
                    'such as "{context} {question}", and a brace of its own stands twice: "{{"'
                )
        checked[name] = place if isinstance(place, str) else tuple(paths)
    return checked


def mapped(row: Row, fields: Fields) -> Row:
    """A row of these fields. Raises DataError, with the columns, for a place that it lacks.

    >>> row = Row("line 1", {"prompt": [{"role": "user", "content": "1 + 1?"}], "n": {"gold": 2}})
    >>> mapped(row, {"question": "Add. {prompt.0.content}", "answer": "n.gold"}).fields
    {'question': 'Add. 1 + 1?', 'answer': 2}
    """
    return Row(row.where, {name: _value(row, place) for name, place in fields.items()})


def has_place(row: Row, place: str | Sequence[str]) -> bool:
    """True if the row has a value that is not None at every path of the place."""
    if not isinstance(place, str):
        return all(has_place(row, path) for path in place)
    paths = _BRACES.findall(place) if "{" in place else [place]
    return all(_found(row.fields, path) not in (_MISSING, None) for path in paths if path)


def _value(row: Row, place: str | Sequence[str]) -> Any:  # noqa: ANN401 (JSON)
    if not isinstance(place, str):
        # Lists of several columns are one list, such as an answer and its aliases.
        values = [_value(row, path) for path in place]
        return [v for value in values for v in (value if isinstance(value, list) else [value])]
    if "{" not in place and "}" not in place:
        return _at(row, place)

    def text(match: re.Match[str]) -> str:
        path = match[1]
        if path is None:
            return match[0][0]
        return text_field(Row(row.where, {path: _at(row, path)}), path)

    return _BRACES.sub(text, place)


def _at(row: Row, path: str) -> Any:  # noqa: ANN401 (JSON)
    value = _found(row.fields, path)
    if value is _MISSING:
        columns = ", ".join(map(str, row.fields))
        raise DataError(f"{row.where}: no field {path!r}; the columns are {columns}")
    return value


def _found(value: Any, path: str) -> Any:  # noqa: ANN401 (JSON)
    """The value at a path, or `_MISSING`."""
    # Names of columns may hold dots.
    if isinstance(value, Mapping) and path in value:
        return value[path]
    name, dot, rest = path.partition(".")
    step = _step(value, name)
    return step if step is _MISSING or not dot else _found(step, rest)


def _step(value: Any, name: str) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        # Many files have objects as texts of JSON.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return _MISSING
    if isinstance(value, Mapping):
        return value.get(name, _MISSING)
    if isinstance(value, list):
        if re.fullmatch(r"-?\d{1,9}", name):
            return value[int(name)] if -len(value) <= int(name) < len(value) else _MISSING
        parts = [_step(part, name) for part in value]
        return parts if parts and _MISSING not in parts else _MISSING
    return _MISSING
