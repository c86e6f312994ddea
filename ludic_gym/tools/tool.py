"""Tools: typed functions that a model may call; errors become text for the model."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ludic_gym.concurrency import WorkerThread
from ludic_gym.tools.schema import described, parameters_schema, problem_of
from ludic_gym.types import ToolCall, ToolSchema

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
    description, _ = described(inspect.getdoc(function) or "", tuple(parameters["properties"]))
    schema = tool_schema(function.__name__, description, parameters)
    return Tool(function=function, schema=schema, timeout_s=timeout_s, output_limit=output_limit)


def tool_schema(name: str, description: str, parameters: dict[str, Any]) -> ToolSchema:
    """A tool in the format of chat APIs.

    parameters: a JSON schema of type "object".
    """
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


async def call_tool(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """Run a tool call; the result as text, or "Error: ..." for any failure.

    tools: by name. call: its arguments are JSON as the model wrote it, checked against the schema
    before the function runs. Only cancellation is raised.

    >>> def add(a: int, b: int = 1) -> str:
    ...     '''Add two numbers.'''
    ...     return str(a + b)
    >>> for arguments in ('{"a": 2}', '{"a": "x"}'):
    ...     call = ToolCall(id="1", name="add", arguments=arguments)
    ...     print(asyncio.run(call_tool({"add": as_tool(add)}, call)))
    3
    Error: 'a' should be of type integer, got 'x'
    """
    if call.name not in tools:
        return f"Error: there is no tool {call.name!r}; there are {', '.join(sorted(tools))}"
    tool = tools[call.name]
    try:
        # Some models leave them out where a tool has none.
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return f"Error: the arguments are not JSON: {error}"
    problem = problem_of(arguments, tool.schema["function"]["parameters"], "the arguments")
    if problem:
        return shortened(f"Error: {problem}", tool.output_limit)
    # A tool may raise anything: `gather` returns the error as a value, which the model can read.
    outcome = asyncio.gather(_outcome(tool.function, arguments), return_exceptions=True)
    try:
        async with asyncio.timeout(tool.timeout_s):
            (result,) = await outcome
    except TimeoutError:
        return f"Error: {call.name} took longer than {tool.timeout_s:g} s"
    if isinstance(result, BaseException):
        result = f"Error: {type(result).__name__}: {result}"
    return shortened(result, tool.output_limit)


def shortened(text: str, limit: int) -> str:
    r"""The text, with its middle left out where it has more than `limit` characters.

    >>> shortened("0123456789", 6)
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
