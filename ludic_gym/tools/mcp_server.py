"""Tools of an environment for other programs, by the Model Context Protocol or by plain HTTP.

The part of the protocol that tools need is JSON-RPC 2.0 by POST, a response each, without a stream
(https://modelcontextprotocol.io/specification, "Streamable HTTP").
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
from aiohttp import web

import ludic_gym
from ludic_gym.errors import LudicError
from ludic_gym.offered import action_schemas, env_tools
from ludic_gym.tools.tool import call_tool, json_number, problem_of, tool_schema, tools_by_name
from ludic_gym.types import ToolCall, ToolSchema

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
INVALID, NO_METHOD, BAD_PARAMS = -32600, -32601, -32602
BODY_BYTES = 2**20
ACT: ToolSchema = tool_schema(
    "act",
    "Take an action in the environment. Returns what you observe next.",
    {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "The action, as text."}},
        "required": ["action"],
    },
)
Json = dict[str, Any]


class ToolServer(Protocol):
    """Tools, and a way to call them."""

    @property
    def tools(self) -> Sequence[ToolSchema]:
        """The schemas."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The result of a call with checked arguments. Raises LudicError for a failure."""


def action_tools(env: gym.Env[str, str]) -> Sequence[ToolSchema]:
    """Tools by which a program plays the env: its own, or `act` with a text.

    >>> [tool["function"]["name"] for tool in action_tools(gym.make("ludic/ConnectFour-v0"))]
    ['act']
    """
    return tuple(action_schemas(env)) or (ACT,)


class EnvCalls:
    """Calls by which a program plays the env: `action_tools`, and the env's own `tools()`."""

    def __init__(self, env: gym.Env[str, str]) -> None:
        self._env, self._own = env, tools_by_name(env_tools(env))

    @property
    def tools(self) -> Sequence[ToolSchema]:
        """The schemas; those of the actions may differ between episodes."""
        return (*action_tools(self._env), *(tool.schema for tool in self._own.values()))

    async def call(
        self, name: str, arguments: Mapping[str, Any], act: Callable[[str], Awaitable[str]]
    ) -> str:
        """The result of a call: a tool's own, or that of `act` with the action's text."""
        if name in self._own:
            call = ToolCall(id="", name=name, arguments=json.dumps(dict(arguments)))
            return await call_tool(self._own, call)
        if action_schemas(self._env):
            return await act(json.dumps({"name": name, "arguments": dict(arguments)}))
        return await act(str(arguments["action"]))


async def checked_call(server: ToolServer, name: object, arguments: object) -> tuple[str, bool]:
    """Text of the result, and True if it is an error: an unknown tool, wrong arguments, a failure.

    name, arguments: as a program sent them.
    """
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in server.tools}
    if not isinstance(name, str) or name not in schemas:
        return f"there is no tool {name!r:.100}; there are {', '.join(schemas)}", True
    if not isinstance(arguments, dict):
        return f"arguments are an object, got {arguments!r:.100}", True
    if problem := problem_of(arguments, schemas[name], "the arguments"):
        return problem, True
    try:
        return await server.call(name, arguments), False
    except LudicError as error:
        return str(error), True


async def mcp_reply(message: object, server: ToolServer) -> Json | None:
    """Response to a JSON-RPC message; None for a notification, which has none."""
    match message:
        case {"jsonrpc": "2.0", "method": str(method), **rest}:
            params = rest.get("params", {})
        case {"jsonrpc": "2.0", "id": _}:
            return None
        case _:
            return _error(None, INVALID, f"no JSON-RPC request: {message!r:.200}")
    if "id" not in rest:
        return None
    if not isinstance(params, dict):
        return _error(rest["id"], BAD_PARAMS, f"params are an object, got {params!r:.200}")
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            result = {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "ludic", "version": ludic_gym.__version__},
            }
        case "ping":
            result = {}
        case "tools/list":
            functions = [tool["function"] for tool in server.tools]
            result = {
                "tools": [
                    {
                        "name": function["name"],
                        "description": function["description"],
                        "inputSchema": function["parameters"],
                    }
                    for function in functions
                ]
            }
        case "tools/call":
            arguments = params.get("arguments") or {}
            text, is_error = await checked_call(server, params.get("name"), arguments)
            result = {"content": [{"type": "text", "text": text}], "isError": is_error}
        case _:
            return _error(rest["id"], NO_METHOD, f"there is no method {method!r:.100}")
    return {"jsonrpc": "2.0", "id": rest["id"], "result": result}


def _error(id: object, code: int, text: str) -> Json:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}


async def serve_mcp(request: web.Request, server: ToolServer) -> web.Response:
    """POST /mcp: one message of the protocol."""
    reply = await mcp_reply(await _json(request), server)
    return web.Response(status=202) if reply is None else web.json_response(reply)


async def serve_list(request: web.Request, server: ToolServer) -> web.Response:
    """GET /tools: the schemas, in the format of chat APIs."""
    return web.json_response({"tools": list(server.tools)})


async def serve_call(request: web.Request, server: ToolServer) -> web.Response:
    """POST /tools/NAME: a call with the arguments of its JSON body, {"result": ...}."""
    arguments = await _json(request)
    text, is_error = await checked_call(server, request.match_info["name"], arguments)
    return web.json_response({"result": text, "is_error": is_error})


async def _json(request: web.Request) -> object:
    """The body's JSON. Raises HTTPBadRequest for anything else."""
    try:
        return json.loads(await request.read() or b"{}", parse_float=json_number)
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(reason="the body is no JSON") from error
