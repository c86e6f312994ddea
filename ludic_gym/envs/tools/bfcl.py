"""BFCL: the single-turn categories of the Berkeley Function-Calling Leaderboard, from its files."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.data.load import Origin, Parse, Rows, parsed_rows
from ludic_gym.data.row import Row
from ludic_gym.envs.core.base import Turn, checked_choice
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.envs.tools.bfcl_rules import (
    LANGUAGES,
    Answer,
    Function,
    plain_name,
    problem_of_calls,
    right_call,
)
from ludic_gym.envs.tools.calls import FORM, Call, Schemas, calls_in, listed
from ludic_gym.envs.tools.code_literals import python_calls
from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade
from ludic_gym.packages import optional
from ludic_gym.reader import without_thought
from ludic_gym.tools.tool import JSONSchema, tool_schema
from ludic_gym.types import ToolSchema

# The package pins NumPy 1.26 for programs that are not used here.
INSTALL = "--no-deps bfcl-eval"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "non_live": (
        "simple_python", "simple_java", "simple_javascript", "multiple", "parallel",
        "parallel_multiple", "irrelevance",
    ),
    "live": (
        "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
        "live_irrelevance", "live_relevance",
    ),
}  # fmt: skip
CATEGORIES = tuple(name for names in GROUPS.values() for name in names)
# Categories without possible answers: no call at all is right, or any call.
NO_CALL, ANY_CALL = ("irrelevance", "live_irrelevance"), ("live_relevance",)
JSON_TYPES: Mapping[str, str] = {
    "dict": "object", "integer": "integer", "float": "number", "boolean": "boolean",
    "array": "array", "tuple": "array",
}  # fmt: skip
NO_CALL_REPLY = "None of the functions fits."
PROMPT = (
    "Answer the request by calls of these functions:\n{functions}\n"
    "Reply with a JSON list of calls and nothing else: [{form}, ...]. If no function fits the "
    "request, or if a value that a call needs is missing, say so in a sentence and call nothing."
)
# Signs of a reply that was meant as calls; the names of the functions are put in.
_ATTEMPT = r"<tool_call>|\A\s*(?:```\w*\s*)?[\[{{]|\b(?:{names})\s*\("
_FENCED = re.compile(r"```\w*\s(.*?)```", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuestion(Question):
    """A request, the functions that are offered, and the calls that are right.

    answers: () in a category without possible answers. prompt: the request's own system prompt.
    """

    category: str
    functions: tuple[Function, ...]
    answers: tuple[Answer, ...]
    prompt: str


class BFCLEnv(DatasetEnv):
    """A request of BFCL v4, answered by calls of the functions that it comes with, or by none.

    Single, parallel and multiple calls, requests that no function fits, and those of real users
    ("live"), by the leaderboard's rules; the guide "Published benchmarks" has the differences.

    - Observation: the request; at the end, the reason why the calls are wrong.
    - Action: the calls, as JSON, in <tool_call> tags or in Python's syntax; a sentence calls
      nothing. For models with tools of their own, the functions are offered as such.
    - Reward: 1 if the calls are right, else 0 (component "correct"). A call that cannot be read is
      wrong everywhere, also where none is right.
    - Info at the end: see `QuestionEnv` and `DatasetEnv`; also "category".

    Args:
        data: folder with the files BFCL_v4_*.json or .json.gz and their possible answers; None: the
            one of the package bfcl-eval (pip install --no-deps bfcl-eval).
        category: one of those of the leaderboard, such as "simple_python", or all of "non_live" or
            "live".
    """

    def __init__(
        self,
        data: str | None = None,
        category: str = "non_live",
        render_mode: str | None = None,
    ) -> None:
        checked_choice("category", category, (*GROUPS, *CATEGORIES))
        folder = data_folder(data)
        super().__init__(_read_rows(folder, category, newest_change(folder)), render_mode)
        self.prompt = ""
        # Of the first row until an episode begins: policies look before whether there are any.
        self.action_tools = tools_of(schemas_for(_asked(self._questions[0]).functions))

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The request of the row; its functions are offered."""
        asked = _asked(super().ask(options))
        schemas = schemas_for(asked.functions, LANGUAGES.get(asked.category, ""))
        self.action_tools = tools_of(schemas)
        self.about["category"] = asked.category
        rules = PROMPT.format(functions=listed(schemas), form=FORM)
        self.prompt = "\n\n".join(filter(None, (asked.prompt, rules)))
        return asked

    def turn(self, action: str) -> Turn:
        """Compare the calls with the right ones."""
        _, reward, terminated, truncated, info = super().turn(action)
        return info["rule"], reward, terminated, truncated, info

    def grade_action(self, action: str) -> Grade:
        """The grade of the calls in the reply."""
        asked = _asked(self.question)
        calls, problem = read_calls(action, asked.functions)
        if problem:
            return Grade(False, None, problem)
        answer = "".join(call.as_json() for call in calls)
        if unknown := [call.name for call in calls if call.name not in _names(asked.functions)]:
            problem = f"there is no function {unknown[0]!r:.100}"
        elif asked.category in NO_CALL:
            problem = f"{calls[0].name}: no call is right" if calls else ""
        elif asked.category in ANY_CALL:
            problem = "" if calls else "a call is right, got none"
        else:
            problem = problem_of_calls(calls, asked.functions, asked.answers, asked.category)
        return Grade(not problem, answer, problem or "right")

    def best_action(self) -> str:
        """The calls of the possible answers, or a sentence where none is right."""
        asked = _asked(self.question)
        if asked.category in NO_CALL:
            return NO_CALL_REPLY
        if asked.category in ANY_CALL:
            return Call(plain_name(asked.functions[0]["name"]), {}).as_json()
        calls = [right_call(one, asked.functions, asked.category) for one in asked.answers]
        return f"[{', '.join(call.as_json() for call in calls)}]"


def _asked(question: Question) -> CallQuestion:
    assert isinstance(question, CallQuestion), "_question makes all rows"
    return question


def read_calls(action: str, functions: Sequence[Function]) -> tuple[list[Call], str]:
    """The calls in a reply, and the reason why they cannot be read.

    A sentence has none. Calls are JSON as in `calls_in`, or Python's, alone or in a code block.
    """
    said = without_thought(action)
    parameters = {
        name: list(function["parameters"]["properties"])
        for function in functions
        for name in (function["name"], plain_name(function["name"]))
    }
    names = "|".join(map(re.escape, parameters))
    if not re.search(_ATTEMPT.format(names=names), said):
        return [], ""
    calls, problem = calls_in(action)
    if not problem:
        return calls, ""
    fenced = _FENCED.findall(said)
    in_python = python_calls(fenced[-1] if fenced else said, parameters)
    return ([], problem) if in_python is None else (in_python, "")


def _names(functions: Sequence[Function]) -> set[str]:
    """The names of the functions, with and without points."""
    names = {function["name"] for function in functions}
    return names | set(map(plain_name, names))


def schemas_for(functions: Sequence[Function], language: str = "") -> Schemas:
    """Schemas in JSON's types of the functions of a row, by names without points.

    language: "java" or "javascript" for functions whose values are texts of code.
    """
    return {
        plain_name(one["name"]): (one["description"], _object_schema(one["parameters"], language))
        for one in functions
    }


def tools_of(schemas: Schemas) -> Sequence[ToolSchema]:
    """The schemas in the format of chat APIs."""
    return tuple(tool_schema(name, *one) for name, one in schemas.items())


def _object_schema(parameters: JSONSchema, language: str) -> JSONSchema:
    properties = {
        key: _code_schema(schema, language) if language else _json_schema(schema)
        for key, schema in parameters["properties"].items()
    }
    required = list(parameters.get("required", ()))
    return {"type": "object", "properties": properties, "required": required}


def _code_schema(schema: JSONSchema, language: str) -> JSONSchema:
    kind = schema["type"] + (f" of {schema['items']['type']}" if "items" in schema else "")
    text = f"{schema.get('description', '')} A text of {language}, of type {kind}."
    return {"type": "string", "description": text.strip()}


def _json_schema(schema: JSONSchema) -> JSONSchema:
    """The schema in JSON's types, at all depths."""
    made = {**schema, "type": JSON_TYPES.get(schema.get("type", ""), "string")}
    if "properties" in schema:
        made["properties"] = {k: _json_schema(v) for k, v in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        made["items"] = _json_schema(schema["items"])
    # Some rows have a default that JSON Schema does not know at this place.
    made.pop("optional", None)
    return made


def data_folder(data: str | None) -> Path:
    """The folder of the leaderboard's files. Raises DataError, or MissingPackage for None."""
    if data is None:
        return Path(str(optional("bfcl_eval", INSTALL).__file__)).parent / "data"
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"data is the folder with the files BFCL_v4_*.json, got {data!r}")
    return folder.resolve()


def newest_change(folder: Path) -> int:
    """Time of the newest change in the folder, so that changed files are read again."""
    return max((path.stat().st_mtime_ns for path in folder.rglob("*.json*")), default=0)


def json_rows(folder: Path, name: str, part: str = "") -> list[Row]:
    """The rows of a file of the folder: PART/NAME.json or PART_NAME.json, also as .json.gz.

    Raises DataError for a file that is missing or is not one JSON object a line.
    """
    stems = [folder / part / name, folder / f"{part}_{name}"] if part else [folder / name]
    paths = [Path(f"{stem}.json{ending}") for stem in stems for ending in ("", ".gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        there = ", ".join(sorted(one.name for one in folder.iterdir()))
        raise DataError(
            f"{folder}: no file {paths[0].relative_to(folder)}; there are: {there:.500}"
        )
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        lines = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{path}: not one JSON object a line ({error})") from error
    return [Row(f"{path.name} line {i}", fields) for i, fields in enumerate(lines, 1)]


def answered_rows(folder: Path, category: str) -> Iterator[Row]:
    """The rows of a category with "category", and "ground_truth" where there are answers."""
    name = f"BFCL_v4_{category}"
    answers: dict[str, Any] = {}
    if category not in (*NO_CALL, *ANY_CALL):
        answers = {
            row.fields["id"]: row.fields["ground_truth"]
            for row in json_rows(folder, name, "possible_answer")
        }
    for row in json_rows(folder, name):
        # The files are one publication: a row without its answer is a broken copy.
        if answers and row.fields["id"] not in answers:
            raise DataError(f"{row.where}: no possible answer for {row.fields['id']!r}")
        truth = answers.get(row.fields["id"], [])
        yield Row(row.where, {**row.fields, "ground_truth": truth, "category": category})


# Few: the rows of all categories are 4 MB.
@lru_cache(maxsize=16)
def _read_rows(folder: Path, category: str, changed_ns: int) -> Rows[CallQuestion]:
    """The questions of a category or a group, read once per state of the folder."""
    rows = (
        row for name in GROUPS.get(category, (category,)) for row in answered_rows(folder, name)
    )
    origin = Origin(f"BFCL_v4_{category}", "file", "")
    return parsed_rows(enumerate(rows), Parse(_question), origin)


def _question(row: Row) -> CallQuestion:
    """The question of a row. Raises DataError."""
    fields = row.fields
    try:
        (messages,) = fields["question"]
        return CallQuestion(
            dialog_text([message for message in messages if message["role"] != "system"]),
            json.dumps(fields["ground_truth"]),
            category=fields["category"],
            functions=tuple(fields["function"]),
            answers=tuple(fields["ground_truth"]),
            prompt="\n\n".join(m["content"] for m in messages if m["role"] == "system"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{row.where}: no row of BFCL ({type(error).__name__}: {error})") from error


def dialog_text(messages: Sequence[Mapping[str, str]]) -> str:
    """The messages as one observation: the text of a single one, else each with its role."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{m['role'].capitalize()}: {m['content']}" for m in messages)
