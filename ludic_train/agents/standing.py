"""A gateway of its own process: sessions are opened and closed by HTTP, and written as traces."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ConfigError
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.measured import local_gateway
from ludic_train.agents.server import json_response
from ludic_train.agents.session import Session
from ludic_train.agents.trace import trace_of, trace_to_json
from ludic_train.errors import SessionOver
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from ludic_train.commands.gateway import GatewayOptions

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StandingGateway:
    """Routes by which another program opens and closes sessions.

    token: of these routes. out: folder for the traces; None writes none.
    """

    def __init__(self, gateway: Gateway, token: str, out: Path | None = None) -> None:
        self.gateway, self._token, self._out = gateway, token, out
        gateway.routes = self.add_routes

    def add_routes(self, app: web.Application) -> None:
        """Add them to the gateway's own."""
        app.router.add_post("/sessions", self._guarded(self._open))
        app.router.add_get("/sessions/{key}", self._guarded(self._trace))
        app.router.add_post("/sessions/{key}/close", self._guarded(self._close))

    def _guarded(self, handle: Handle) -> Handle:
        """The handler for requests that have the gateway's token; others get status 401."""

        async def checked(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            # In constant time: otherwise response times would give the token away.
            if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
                raise SessionOver("sessions are opened and closed with the gateway's token")
            return await handle(request)

        return checked

    async def _open(self, request: web.Request) -> web.Response:
        """POST /sessions: addresses and key of a new one."""
        session = self.gateway.open()
        return json_response(
            {
                "key": session.id,
                "base_url": self.gateway.base_url(session),
                "root_url": self.gateway.root_url(session),
            }
        )

    async def _trace(self, request: web.Request) -> web.Response:
        """GET /sessions/KEY: its trace so far."""
        session = self.gateway.session(request.match_info["key"])
        return web.Response(
            body=trace_to_json(trace_of(session.calls)), content_type="application/json"
        )

    async def _close(self, request: web.Request) -> web.Response:
        """POST /sessions/KEY/close: its trace; {"reward": ...} of the body is written beside it."""
        session = self.gateway.session(request.match_info["key"])
        reward = _reward(await request.read())
        # First: a call that is answered after this is not in the session, and so not missing below.
        self.gateway.close(session)
        trace = trace_to_json(trace_of(session.calls))
        if self._out is not None:
            await asyncio.to_thread(self._write, session, trace, reward)
        return web.Response(body=trace, content_type="application/json")

    def _write(self, session: Session, trace: bytes, reward: float | None) -> None:
        assert self._out is not None
        self._out.mkdir(parents=True, exist_ok=True)
        # Not under its key, by which requests are made.
        path = self._out / f"{secrets.token_hex(8)}.json"
        line = {"trace": json.loads(trace), "reward": reward, "undelivered": session.undelivered}
        path.write_text(json.dumps(line) + "\n", encoding="utf-8")


def _reward(data: bytes) -> float | None:
    """The reward in a body; None for an empty body. Raises ConfigError for anything else."""
    try:
        match json.loads(data or b"{}"):
            # Python's JSON has NaN and infinities, which the file of the trace could not hold.
            case {"reward": float(value) | int(value)} if math.isfinite(value):
                return float(value)
            case {**rest} if not rest:
                return None
    except (ValueError, RecursionError, OverflowError):
        pass
    raise ConfigError(f'the body is empty or {{"reward": NUMBER}}, got {data!r:.100}')


def made_gateway(options: GatewayOptions) -> Gateway:
    """The gateway of a command line. Raises ModelNotFound, ConfigError."""
    if not options.server:
        gateway, _ = local_gateway(
            options.model, host=options.host, port=options.port, deadline_s=options.deadline
        )
        gateway.max_tokens = options.max_tokens
        return gateway
    tokenizer = load_tokenizer(options.model)
    client = VLLMTokenClient(options.server, chat_renderer(tokenizer), seeds=False)
    return Gateway(
        client,
        tokenizer,
        model=options.model,
        max_tokens=options.max_tokens,
        deadline_s=options.deadline,
        host=options.host,
        port=options.port,
    )


async def serve(options: GatewayOptions, key: str | None, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. key: the token of sessions; None makes one, and prints it."""
    token = key or secrets.token_urlsafe(24)
    standing = StandingGateway(made_gateway(options), token, options.out)
    async with standing.gateway.running() as gateway:
        # Output is kept in logs: a token that was given is known to those who need it.
        shown = "" if key else f"  token {token}"
        print(f"ready  {gateway.url}  ({options.model}){shown}", flush=True)
        await stop.wait()
        print("stopping", flush=True)
