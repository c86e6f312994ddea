"""Tools of servers that speak the Model Context Protocol (https://modelcontextprotocol.io).

A server is another program, on this machine or behind an address, that describes its tools itself:

    async with mcp_tools(["uvx", "mcp-server-time"]) as tools:
        policy = ToolUse(chat, tools)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ludic_gym.concurrency import Caught
from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.packages import optional
from ludic_gym.tools.tool import OUTPUT_LIMIT, TIMEOUT_S, Tool, tool_schema

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp import Client, StdioServerParameters
    from mcp.client import Transport
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServerTool

START_S = 60.0
# Seconds in which a server that lives lists its tools, after a call has failed.
CHECK_S = 5.0


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
    A server that has died is started again, and so is one that does not respond after a call took
    too long. The call in which it died is an error for the model; EpisodeError, which fails the
    episode, if the server cannot be started, or has not answered a single call.
    The tools work in the block's event loop only, for any number of policies. Results other than
    text are named and left out. Raises ConfigError without the extra `mcp`, or if the server does
    not start.
    """
    connection = ServerConnection(_target(server, environment), timeout_s)
    try:
        listed = await _server_tools(await connection.open())
        # Each with the server's own schema.
        yield tuple(
            Tool(
                function=partial(connection.call, tool.name),
                schema=tool_schema(tool.name, tool.description or "", tool.input_schema),
                # The connection has its own limit for a call; then it may start the server again.
                timeout_s=timeout_s + CHECK_S + START_S,
                output_limit=output_limit,
            )
            for tool in listed
        )
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True, eq=False)
class _Session:
    """A connection that is open until `leave` is set. outputs: of a command, [] of an address."""

    client: Client
    leave: asyncio.Event
    outputs: Sequence[MemoryObjectReceiveStream[Any]]

    @property
    def has_ended(self) -> bool:
        """True for a command that has closed its output."""
        return any(not output.statistics().open_send_streams for output in self.outputs)


class ServerConnection:
    """A connection to a server, opened again when the server has died.

    target: an address, or the parameters of a command. timeout_s: of every call.
    """

    def __init__(self, target: str | StdioServerParameters, timeout_s: float) -> None:
        self._target, self._timeout_s = target, timeout_s
        self._opening = asyncio.Lock()
        self._session: _Session | None = None
        self._keepers: list[asyncio.Task[None]] = []
        # Since it was started.
        self._has_answered = False
        # A call was cancelled: perhaps because the server does not respond.
        self._is_suspect = False

    async def open(self) -> Client:
        """A client of the server, which is started if it does not run. Raises ConfigError."""
        async with self._opening:
            if self._session is None or self._session.has_ended:
                self._leave()
                self._session = await self._begin()
            return self._session.client

    async def call(self, tool_name_: str, /, **arguments: Any) -> str:  # noqa: ANN401
        """The result of a tool as text; "Error: ..." for one that the server marks so.

        tool_name_: so that an argument of the tool may have any name.
        Raises EpisodeError for a server that cannot be used.
        """
        client = await self._living()
        try:
            with Caught(Exception) as failure:
                async with asyncio.timeout(self._timeout_s):
                    result = await client.call_tool(tool_name_, arguments)
                self._has_answered = True
                return _text_of(result)
        except asyncio.CancelledError:
            self._is_suspect = True
            raise
        is_late = isinstance(failure.error, TimeoutError)
        reason = f"took longer than {self._timeout_s:g} s" if is_late else f"failed, {failure.text}"
        if await self._responds(client):
            return f"Error: {tool_name_} {reason}"
        if is_late and not self._has_answered:
            raise EpisodeError(f"the MCP server {self._target!r} answers no call: {reason}")
        await self._living()
        return f"Error: {tool_name_} {reason}; its server was started again"

    async def close(self) -> None:
        """End the server, or the connection to it."""
        self._leave()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _living(self) -> Client:
        """A client of a server that runs. Raises EpisodeError if it cannot be started."""
        if self._is_suspect and self._session is not None:
            self._is_suspect = False
            await self._responds(self._session.client)
        try:
            return await self.open()
        except ConfigError as error:
            raise EpisodeError(str(error)) from error

    async def _responds(self, client: Client) -> bool:
        """True if the server lists its tools in time; else its session ends."""
        with Caught(Exception):
            async with asyncio.timeout(CHECK_S):
                await client.session.list_tools()
                return True
        # Another call may have begun a new session since.
        if self._session is not None and self._session.client is client:
            self._leave()
        return False

    async def _begin(self) -> _Session:
        """A new session with the server. Raises ConfigError."""
        mcp, outputs = optional("mcp", "ludic-gym[mcp]"), list[Any]()
        is_address = isinstance(self._target, str)
        server = self._target if is_address else _noting(mcp.stdio_client(self._target), outputs)
        client = mcp.Client(server, read_timeout_seconds=START_S)
        session = _Session(client, asyncio.Event(), outputs)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def keep() -> None:
            try:
                async with client:
                    ready.set_result(None)
                    await session.leave.wait()
            # A server may fail in any way at its start; the SDK raises a group of errors.
            except Exception as error:
                if not ready.done():
                    ready.set_exception(error)

        # In a task of its own: the SDK has to be left by the task that has entered it.
        keeper = asyncio.create_task(keep())
        self._keepers.append(keeper)
        try:
            await ready
        except Exception as error:
            raise ConfigError(
                f"the MCP server {self._target!r} does not start: {_first(error)}"
            ) from error
        except asyncio.CancelledError:
            keeper.cancel()
            raise
        self._has_answered = False
        return session

    def _leave(self) -> None:
        """End the session, if there is one, without waiting for it."""
        if self._session is not None:
            self._session.leave.set()
        self._session = None


def _target(
    server: str | Sequence[str], environment: Mapping[str, str] | None
) -> str | StdioServerParameters:
    """The address itself, or the parameters of the command. Raises ConfigError for an empty one."""
    mcp = optional("mcp", "ludic-gym[mcp]")
    if not server:
        raise ConfigError(f"a server is an address or a command, got {server!r}")
    if isinstance(server, str):
        return server
    # None of our own variables, which may hold secrets.
    program, *arguments = server
    parameters: StdioServerParameters = mcp.StdioServerParameters(
        command=program, args=arguments, env=dict(environment or {})
    )
    return parameters


@asynccontextmanager
async def _noting(transport: Transport, outputs: list[Any]) -> AsyncIterator[Any]:
    """The transport; the stream of the server's output is added to the list."""
    async with transport as streams:
        outputs.append(streams[0])
        yield streams


async def _server_tools(client: Client) -> list[ServerTool]:
    """All tools that the server offers, from all pages of its list."""
    page = await client.list_tools()
    listed = list(page.tools)
    # Servers may send their list in pages.
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        listed += page.tools
    return listed


def _text_of(result: CallToolResult) -> str:
    """The text parts of a result, one per line; "Error: ..." for one that the server marks so."""
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
