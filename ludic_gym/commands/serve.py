"""`ludic serve`: an environment as tools for agent programs, or a model.

Models are served by the plug-in of the same name, so that an environment needs no torch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import gymnasium as gym
import tyro
from aiohttp import web
from aiohttp.typedefs import Handler

from ludic_gym.commands.arguments import (
    check_port,
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import LudicError
from ludic_gym.packages import TRAIN_PACKAGES, advice_for, find_plugins, load_plugin
from ludic_gym.rollout.episodes import task_env
from ludic_gym.rollout.pool import awaitable_env
from ludic_gym.rollout.pool import call as call_env
from ludic_gym.tools.mcp_server import (
    BODY_BYTES,
    EnvCalls,
    serve_call,
    serve_list,
    serve_mcp,
)
from ludic_gym.tools.tool import tool_schema
from ludic_gym.types import Env, Task, ToolSchema
from ludic_gym.web_pages import page_fault

EXAMPLES = """\
ludic serve ludic/ToolCalls-v0 --mcp
ludic serve ludic/Wordle-v0 --port 8090
ludic serve ludic/GSM8K-v0 --env-kwargs split=test"""
RESET: ToolSchema = tool_schema(
    "reset",
    "Begin a new episode. Returns the task, which you then do by the other tools.",
    {
        "type": "object",
        "properties": {
            "seed": {"type": "integer", "description": "Equal seeds begin equal episodes."}
        },
    },
)


@dataclass(frozen=True, kw_only=True)
class ServeEnvArgs:
    """Serve an environment as tools, for agent programs of any kind.

    `reset` begins an episode; the environment's own tools, or `act`, play it. The result of its
    last turn has the reward. One program plays at a time. Ctrl-C stops the server.
    """

    id: Annotated[tyro.conf.Positional[str], option("ID")]
    """Environment id, as in `ludic list`."""
    mcp: bool = False
    """Print the address of the Model Context Protocol alone; it is served without this too."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8090
    """Port; 0 takes a free one."""


class EnvServer:
    """Tools that play one env, an episode after the other."""

    def __init__(self, env: Env) -> None:
        self._env = awaitable_env(env)
        self._calls = EnvCalls(env)
        self._turn = asyncio.Lock()
        self._is_over = True

    @property
    def tools(self) -> Sequence[ToolSchema]:
        """`reset`, the env's actions and its tools."""
        return (RESET, *self._calls.tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Begin an episode, or play a turn.

        Raises LudicError for a turn outside an episode, and for a negative seed.
        """
        # Programs call tools in parallel, and an env has one turn at a time.
        async with self._turn:
            if name == "reset":
                seed = arguments.get("seed")
                if seed is not None and seed < 0:
                    raise LudicError(f"seed is 0 or more, got {seed}")
                begun = await call_env(self._env, self._env.reset, seed=seed)
                self._is_over = False
                return "\n\n".join(filter(None, (begun[1].get("system_prompt", ""), begun[0])))
            if self._is_over:
                raise LudicError("no episode is running: call `reset` first")
            return await self._calls.call(name, arguments, self._act)

    async def _act(self, action: str) -> str:
        seen, reward, terminated, truncated, info = await call_env(
            self._env, self._env.step, action
        )
        self._is_over = bool(terminated or truncated)
        if not self._is_over:
            return str(seen)
        ending = f"The episode is over: reward {reward:g}, success {info.get('success')}."
        return f"{seen}\n{ending}".strip()


def main(argv: list[str]) -> int:
    """Serve an environment, or a model by its plug-in, until Ctrl-C; the exit code."""
    plugin = find_plugins("ludic.commands").get("serve")
    words = [word for word in argv if not word.startswith("-")]
    if plugin is None or any(map(is_env, words[:1])):
        return serve_env(argv)
    with advice_for("serve", TRAIN_PACKAGES):
        return int(load_plugin(plugin)(argv))


def is_env(name: str) -> bool:
    """True for the id of an environment, with the module that registers it or without."""
    module, colon, env_id = name.rpartition(":")
    if colon and re.fullmatch(r"[A-Za-z_][\w.]*", module):
        return "/" not in module and not env_id.startswith("/")
    return name in gym.registry


def serve_env(argv: list[str]) -> int:
    """Serve an environment until Ctrl-C; the exit code."""
    args = parse(ServeEnvArgs, argv, command="serve", examples=EXAMPLES)
    check_port(args.port)
    task = Task(env_id=env_name(args.id), kwargs=keyword_arguments(args.env_kwargs))
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(task, args))
    return 0


async def _serve(task: Task, args: ServeEnvArgs) -> None:
    """Serve an env of the task until Ctrl-C."""
    async with AsyncExitStack() as stack:
        with readable_env_errors():
            env = await stack.enter_async_context(task_env(task))
        await _listen(env, args)


async def _listen(env: Env, args: ServeEnvArgs) -> None:
    runner = web.AppRunner(make_app(EnvServer(env), args.host), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, args.host, args.port)
        try:
            await site.start()
        except OSError as error:
            raise LudicError(
                f"cannot listen on {args.host}:{args.port} ({error.strerror}): take another --port"
            ) from error
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}"
        print(f"ready  {url}/mcp" if args.mcp else f"ready  {url}  (/mcp, /tools)", flush=True)
        # Until Ctrl-C cancels it.
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def make_app(server: EnvServer, host: str = "127.0.0.1") -> web.Application:
    """The routes. host: the address that is listened on."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if fault := page_fault(host, request.host, request.headers.get("Origin")):
            raise web.HTTPForbidden(text=fault)
        return await handler(request)

    app = web.Application(middlewares=[guard], client_max_size=BODY_BYTES)
    app.router.add_post("/mcp", partial(serve_mcp, server=server))
    app.router.add_get("/tools", partial(serve_list, server=server))
    app.router.add_post("/tools/{name}", partial(serve_call, server=server))
    return app
