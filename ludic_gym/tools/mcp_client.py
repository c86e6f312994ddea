"""Tools of servers that speak the Model Context Protocol (https://modelcontextprotocol.io).

A server is another program, on this machine or behind an address, that describes its tools itself:

    async with mcp_tools(["uvx", "mcp-server-time"]) as tools:
        policy = ToolUse(chat, tools)
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ludic_gym.errors import ConfigError
from ludic_gym.packages import optional
from ludic_gym.tools.tool import OUTPUT_LIMIT, TIMEOUT_S, Tool, tool_schema

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool as ServerTool

START_S = 60.0


@asynccontextmanager
async def mcp_tools(
    server: str | Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    output_limit: int = OUTPUT_LIMIT,
) -> AsyncIterator[tuple[Tool, ...]]:
    """All tools of a server, which is connected while the block runs.

    server: an address ("http://..."), or a command that starts a server on stdin and stdout, which
        ends with the block. environment: further variables for the command, which otherwise gets
        only PATH, HOME and similar ones.
    timeout_s, output_limit: of every call; see Tool.
    The tools work in the block's event loop only, for any number of policies. Results other than
    text are named and left out. Raises ConfigError without the extra `mcp`, or if the server does
    not start.
    """
    client = await _connect(server, environment)
    try:
        listed = await _server_tools(client)
        # Each with the server's own schema.
        yield tuple(
            Tool(
                function=partial(_call, client, tool.name),
                schema=tool_schema(tool.name, tool.description or "", tool.input_schema),
                timeout_s=timeout_s,
                output_limit=output_limit,
            )
            for tool in listed
        )
    finally:
        # Not `async with`: given the block's error, the SDK would raise it inside a group.
        await client.__aexit__(None, None, None)


async def _connect(server: str | Sequence[str], environment: Mapping[str, str] | None) -> Client:
    """A client that has greeted the server. Raises ConfigError, see `mcp_tools`."""
    mcp = optional("mcp", "ludic-gym[mcp]")
    if not server:
        raise ConfigError(f"a server is an address or a command, got {server!r}")
    if not isinstance(server, str):
        # None of our own variables, which may hold secrets.
        program, *arguments = server
        variables = dict(environment or {})
        server = mcp.StdioServerParameters(command=program, args=arguments, env=variables)
    client: Client = mcp.Client(server, read_timeout_seconds=START_S)
    try:
        await client.__aenter__()
    # A server may fail in any way at its start; the SDK raises a group of errors.
    except Exception as error:
        raise ConfigError(f"the MCP server {server!r} does not start: {_first(error)}") from error
    return client


async def _server_tools(client: Client) -> list[ServerTool]:
    """All tools that the server offers, from all pages of its list."""
    page = await client.list_tools()
    listed = list(page.tools)
    # Servers may send their list in pages.
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        listed += page.tools
    return listed


async def _call(client: Client, tool_name_: str, /, **arguments: Any) -> str:  # noqa: ANN401
    """The text parts of a result, one per line; "Error: ..." for one that the server marks so.

    tool_name_: so that an argument of the tool may have any name.
    """
    result = await client.call_tool(tool_name_, arguments)
    parts = [
        part.text if part.type == "text" else f"[{part.type} left out]" for part in result.content
    ]
    # Servers may return data alone, which the text is to repeat and does not always.
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content)]
    text = "\n".join(parts)
    return f"Error: {text}" if result.is_error else text


def _first(error: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
