"""Tools: schemas, calls, errors and limits."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Literal

import pytest

from ludic_gym.errors import ClientError, ConfigError, SandboxError
from ludic_gym.tools.tool import as_tool, call_tool, problem_of
from ludic_gym.types import ToolCall


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (None, {"type": ["string", "null"]}, ""),
        ("x", {"type": ["string", "null"]}, ""),
        (3, {"type": ["string", "null"]}, "it should be of type string or null, got 3"),
        ({"a": 1}, {"type": "object", "additionalProperties": True}, ""),
        (
            {"a": 1},
            {"properties": {"a": {"type": "string"}}},
            "'a' should be of type string, got 1",
        ),
        ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/A"}}}, ""),
        ([1, [2]], {"items": {"type": "integer"}}, "it[1] should be of type integer, got [2]"),
        (5, {"minimum": 6}, ""),
        ("2026-01-01", {"type": "date"}, ""),
        (5, {"type": ["date", "string"]}, ""),
        (5, {"anyOf": []}, ""),
        ("x", {"anyOf": [True, {"type": "integer"}]}, ""),
        ([5], {"items": True}, ""),
    ],
)
def test_a_schema_from_elsewhere_is_held_to_as_far_as_it_is_understood(value, schema, problem):
    assert problem_of(value, schema, "it") == problem


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def kinds(
    text: str,
    number: float,
    flag: bool,
    choice: Literal["x", 2],
    items: list[int],
    table: dict[str, float],
    maybe: int | None = None,
    anything: Any = None,
) -> str:
    return "fine"


async def call(function, arguments, name=None, **kwargs):
    tool = as_tool(function, **kwargs)
    request = ToolCall(id="c", name=name or tool.name, arguments=arguments)
    return await call_tool({tool.name: tool}, request)


def test_every_type_that_json_has_can_be_a_parameter():
    properties = as_tool(kinds).schema["function"]["parameters"]["properties"]

    assert properties == {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "choice": {"enum": ["x", 2]},
        "items": {"type": "array", "items": {"type": "integer"}},
        "table": {"type": "object", "additionalProperties": {"type": "number"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "anything": {},
    }


def test_lines_of_the_docstring_describe_parameters():
    def book(day: int, room: str = "") -> str:
        """Book a room.

        day: the day of the month,
            from 1.
        Args:
            room (str): its name
        It stays booked.
        """
        return ""

    function = as_tool(book).schema["function"]

    assert function["description"] == "Book a room.\n\nIt stays booked."
    assert function["parameters"]["properties"] == {
        "day": {"type": "integer", "description": "the day of the month, from 1."},
        "room": {"type": "string", "description": "its name"},
    }


def odd_type(a: set[int]) -> str: ...
def odd_keys(a: dict[int, str]) -> str: ...
def no_type(a) -> str: ...
def many(*a: int) -> str: ...
def nameless(a: int, /) -> str: ...


@pytest.mark.parametrize("function", [odd_type, odd_keys, no_type, many, nameless])
def test_a_parameter_that_a_model_cannot_give_is_refused(function):
    with pytest.raises(ConfigError, match=f"parameter 'a' of {function.__name__}"):
        as_tool(function)


async def test_a_call_returns_text_or_json():
    assert await call(add, '{"a": 2, "b": 3}') == "5"
    assert await call(add, '{"a": 2}') == "3"
    assert await call(lambda: "as it is", "", name="<lambda>") == "as it is"
    assert await call(lambda: {"k": [1]}, "{}", name="<lambda>") == '{"k": [1]}'


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("{", "Error: the arguments are not JSON: "),
        ("[" * 100_000, "Error: the arguments are not JSON: "),
        ("[1]", "Error: the arguments should be of type object, got [1]"),
        ("{}", "Error: the arguments lack a"),
        ('{"a": 1, "c": 2}', "Error: the arguments have no 'c'; there are a, b"),
        ('{"a": "1"}', "Error: 'a' should be of type integer, got '1'"),
        ('{"a": 1.5}', "Error: 'a' should be of type integer, got 1.5"),
        ('{"a": true}', "Error: 'a' should be of type integer, got True"),
        ('{"a": null}', "Error: 'a' should be of type integer, got None"),
    ],
)
async def test_arguments_that_do_not_fit_are_explained(arguments, error):
    assert (await call(add, arguments)).startswith(error)


GOOD = '"text": "", "number": 1, "flag": true, "choice": 2, "items": [1], "table": {"k": 0.5}'


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("", "fine"),
        (', "maybe": null', "fine"),
        (', "maybe": 3', "fine"),
        (', "maybe": "3"', "Error: 'maybe' should be of type integer, got '3'"),
        (', "flag": 1', "Error: 'flag' should be of type boolean, got 1"),
        (', "choice": "2"', "Error: 'choice' is one of ['x', 2], got '2'"),
        (', "items": [1, "x"]', "Error: 'items'[1] should be of type integer, got 'x'"),
        (', "table": {"k": "x"}', "Error: 'k' should be of type number, got 'x'"),
        (', "anything": {"deep": [1]}', "fine"),
    ],
)
async def test_arguments_are_checked_in_depth(change, error):
    assert await call(kinds, f"{{{GOOD}{change}}}") == error


@pytest.mark.parametrize("written", ["2", "2.0", "2e0", "0.2e1"])
async def test_a_whole_number_is_an_integer_however_it_is_written(written):
    assert await call(add, f'{{"a": {written}}}') == "3"


async def test_an_unknown_tool_is_named_with_those_there_are():
    assert await call(add, "{}", name="sub") == "Error: there is no tool 'sub'; there are add"


async def test_what_a_tool_raises_becomes_text():
    def divide(a: int) -> float:
        return 1 / a

    async def fails() -> str:
        raise KeyError("k")

    def leaves() -> str:
        raise SystemExit(3)

    async def leaves_later() -> str:
        raise SystemExit(4)

    assert await call(divide, '{"a": 0}') == "Error: ZeroDivisionError: division by zero"
    assert await call(fails, "{}") == "Error: KeyError: 'k'"
    assert await call(leaves, "{}") == "Error: SystemExit: 3"
    assert await call(leaves_later, "{}") == "Error: SystemExit: 4"


async def test_the_middle_of_a_long_result_is_left_out():
    def count(n: int) -> str:
        return "a" * n + "z" * n

    assert await call(count, '{"n": 6}', output_limit=12) == "aaaaaazzzzzz"
    assert await call(count, '{"n": 10}', output_limit=12) == (
        "aaaaaaaa\n[8 characters left out]\nzzzz"
    )


async def test_a_tool_that_takes_too_long_is_left_behind():
    gone = threading.Event()

    def hangs() -> str:
        gone.wait(5)
        return "late"

    async def waits() -> str:
        await asyncio.sleep(5)
        return "late"

    start = time.monotonic()
    assert await call(hangs, "{}", timeout_s=0.05) == "Error: hangs took longer than 0.05 s"
    assert await call(waits, "{}", timeout_s=0.05) == "Error: waits took longer than 0.05 s"
    gone.set()
    assert time.monotonic() - start < 4


async def test_a_tool_that_is_not_async_does_not_hold_up_the_loop():
    def slow() -> str:
        time.sleep(0.1)
        return "done"

    running = asyncio.create_task(call(slow, "{}"))
    ticks = 0
    while not running.done():
        await asyncio.sleep(0.005)
        ticks += 1

    assert running.result() == "done"
    assert ticks > 3


@pytest.mark.parametrize("error", [ClientError("status 503"), SandboxError("no place")])
async def test_a_tool_whose_server_or_sandbox_fails_ends_the_episode(error):
    def search(query: str) -> str:
        """Search."""
        raise error

    call = ToolCall(id="1", name="search", arguments='{"query": "a"}')
    with pytest.raises(type(error)):
        await call_tool({"search": as_tool(search)}, call)
