"""Row: one row of a data set, and checks of its fields."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.errors import DataError

# Roles of a model, by OpenAI and by ShareGPT.
_MODEL = ("assistant", "gpt")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data set.

    where: its place for error messages, such as "rows.jsonl line 3".
    fields: values by name, as the file has them.
    """

    where: str
    fields: Mapping[str, Any]


def text_field(row: Row, name: str) -> str:
    """A field as text: a text as it is, a finite number, or the messages of a dialog.

    Whole numbers have no fraction: 27.0 is "27". Dialogs are put together by `dialog_text`.
    Raises DataError if the field is missing, blank, or another value.

    >>> text_field(Row("rows.jsonl line 3", {"question": " "}), "question")
    Traceback (most recent call last):
    ...
    ludic_gym.errors.DataError: rows.jsonl line 3: no text in field 'question' (it is ' ')
    """
    value = row.fields.get(name)
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if math.isfinite(value):
            return str(int(value) if value == int(value) else value)
    elif isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        return dialog_text(row, name, value)
    columns = f"fields: {sorted(map(str, row.fields))}"
    problem = f"it is {value!r:.80}" if name in row.fields else columns
    raise DataError(f"{row.where}: no text in field {name!r} ({problem})")


def dialog_text(row: Row, name: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The messages of a field before the last reply, as one text.

    A system message and one user message are two paragraphs; in a longer dialog, each message has
    its role before it. Messages are those of OpenAI, or of ShareGPT ("from" and "value").
    Raises DataError for a message without a role or a text, or if none comes before the reply.

    >>> messages = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
    >>> dialog_text(Row("line 1", {}), "prompt", messages)
    '1 + 1?'
    """
    turns = []
    for message in messages:
        role = message.get("role", message.get("from"))
        text = message.get("content", message.get("value"))
        if isinstance(text, list):
            text = "".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
        if not isinstance(role, str) or not isinstance(text, str):
            raise DataError(
                f"{row.where}: field {name!r} has a message without a text: {message!r:.80}"
            )
        turns.append((role, text))
    if turns[-1][0] in _MODEL:
        turns.pop()
    system = [text for role, text in turns if role == "system"]
    others = [(role, text) for role, text in turns if role != "system"]
    if not others:
        raise DataError(f"{row.where}: field {name!r} has no message before the reply")
    if len(others) > 1:
        others = [(role, f"{role.capitalize()}: {text}") for role, text in others]
    return "\n\n".join([*system, *(text for _, text in others)])


def parse_json(row: Row, name: str, text: str) -> Any:  # noqa: ANN401 (JSON)
    """The value of a text of JSON in a field. Raises DataError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{row.where}: field {name!r} is not JSON ({error}): {text[:80]!r}"
        raise DataError(message) from error


@lru_cache(maxsize=16)
def words(path: Path) -> tuple[str, ...]:
    """The words of a bundled list, one or several per line, read once per process.

    path: a UTF-8 text; words are separated by any white space.
    """
    return tuple(path.read_text(encoding="utf-8").split())
