"""The gateway: an address for agent programs and other clients, and the sessions behind it.

    POST /v1/chat/completions, /v1/messages, /v1/responses    a reply, whole or as events
    POST /v1/messages/count_tokens                            tokens of a prompt
    GET  /v1/models, /health, /version
    POST /mcp, GET /tools, POST /tools/NAME                   tools of the session's environment
    POST /sessions, POST /sessions/KEY/close                  with the gateway's token

All but /health, /version and /sessions are also below /s/KEY, the address of a session.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

import ludic_gym
from ludic_gym.errors import ClientError, ConfigError, LudicError, PromptTooLong
from ludic_gym.records import to_json, write_rollouts
from ludic_gym.tools.mcp_server import ToolServer, serve_call, serve_list, serve_mcp
from ludic_gym.types import ChatClient, Decision, Rollout, Sampling, Step, Task
from ludic_gym.web_pages import page_fault
from ludic_train.agents.dialects import chat, messages, responses
from ludic_train.agents.dialects.fields import body_of
from ludic_train.agents.prompts import Prompts
from ludic_train.agents.session import Engine, Session
from ludic_train.agents.types import Event, Json, Request, Response
from ludic_train.errors import ModelNotFound, SessionOver
from ludic_train.processes import bound_socket, url_of
from ludic_train.server_tokens import KEY_VARIABLE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEADLINE_S = 600.0
# Sessions end first, so that only their last responses are still being sent.
SHUTDOWN_S = 0.2
# Connections that wait to be accepted: hundreds of agents may start at once.
BACKLOG = 1024
# A prompt of 128k token ids takes about one MiB.
BODY_BYTES = 8 * 2**20
# Begins the keys of sessions, which no other key of a client does.
KEY_PREFIX = "sk-ludic-"
HEADER = "X-Ludic-Session"
# Set by the SDKs of OpenAI and Anthropic.
RETRIES = "x-stainless-retry-count"


class Gateway:
    """OpenAI's and Anthropic's APIs in front of a model, whose tokens are recorded by session.

        async with Gateway(client, tokenizer).running() as gateway:
            session = gateway.open()
            agent = openai.AsyncOpenAI(base_url=gateway.base_url(session), api_key=session.id)

    engine: `LocalChatClient`, or `VLLMTokenClient` for servers, and the tokenizer of its model; or
        any other chat client without a tokenizer, of which texts alone are recorded.
    model: the name that GET /v1/models returns; requests may name any model.
    max_tokens: longest reply of a request that names no limit.
    max_positions: of the model; replies are limited to what a prompt leaves. None for no limit.
    deadline_s: seconds after which a session ends by itself. host, port: of the address; port 0
        takes a free one.
    is_open: True responds to requests without a session too; their tokens are in no episode.
    token: of the routes by which other programs open and close sessions; "" for no such routes.
    out: folder for the rollouts of sessions that other programs close; None writes none.
    routes: adds further ones to the application.
    """

    def __init__(
        self,
        engine: Engine | ChatClient,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        model: str = "policy",
        max_tokens: int = 1024,
        max_positions: int | None = None,
        deadline_s: float = DEADLINE_S,
        host: str = "127.0.0.1",
        port: int = 0,
        is_open: bool = False,
        token: str = "",
        out: Path | str | None = None,
        routes: Callable[[web.Application], None] = lambda app: None,
    ) -> None:
        self.engine, self.model = engine, model
        self.prompts = None if tokenizer is None else Prompts(tokenizer, max_positions)
        self.max_tokens, self.max_positions, self.deadline_s = max_tokens, max_positions, deadline_s
        self.host, self.port = host, port
        self.is_open, self.token, self._routes = is_open, token, routes
        self._out = None if out is None else Path(out)
        self.sessions: dict[str, Session] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    def open(self, *, sampling: Sampling | None = None, deadline_s: float | None = None) -> Session:
        """A new session; the gateway's event loop must run.

        sampling: as of `Session`. deadline_s: seconds until it ends by itself.
        """
        # Longer than a program could guess: a holder of the key acts for the episode.
        session = self._session(f"{KEY_PREFIX}{secrets.token_urlsafe(24)}", sampling)
        self.sessions[session.id] = session
        loop = asyncio.get_running_loop()
        seconds = self.deadline_s if deadline_s is None else deadline_s
        self._timers[session.id] = loop.call_later(seconds, self.close, session)
        return session

    def close(self, session: Session) -> None:
        """End a session, if it has not ended; its calls stay."""
        session.close()
        self.sessions.pop(session.id, None)
        timer = self._timers.pop(session.id, None)
        if timer is not None:
            timer.cancel()

    def session(self, id: str) -> Session:
        """The session of an id. Raises SessionOver for an unknown one."""
        if id not in self.sessions:
            # Only its beginning: errors are written to logs, and the key is a secret.
            raise SessionOver(
                f"no session is open under the key {id[:12]!r}...: it has ended, or it is another "
                "gateway's; use the base URL or the API key of the session"
            )
        return self.sessions[id]

    def session_of(self, named: str, key: str) -> Session:
        """The session of a request; one of its own for a request without, where they are allowed.

        named: id in its URL or header. key: its API key. Raises SessionOver.
        """
        # A forged name must not fall back to the key.
        if named or key.startswith(KEY_PREFIX) or not self.is_open:
            return self.session(named or key)
        if os.environ.get(KEY_VARIABLE):
            self.require_token(key)
        return self._session("", None)

    def require_token(self, key: str) -> None:
        """Raise SessionOver for a key other than the gateway's token."""
        # In constant time: otherwise response times would give the token away.
        if not hmac.compare_digest(key.encode(errors="replace"), self.token.encode()):
            raise SessionOver(
                "this needs the server's token: be the user who started it, or set "
                f"{KEY_VARIABLE} to one value for the server and for its clients"
            )

    def save(self, session: Session, reward: float) -> Rollout:
        """Calls of a session as a rollout, which is also written into the gateway's folder."""
        steps: list[Step] = []
        for call in session.calls:
            decision = Decision(action=call.completion.text, completions=(call.completion,))
            observation = str(call.request.messages[-1].get("content") or "")
            steps.append(Step(observation=observation, decision=decision, reward=0.0))
        if steps:
            info = {"undelivered": session.undelivered}
            steps[-1] = replace(steps[-1], reward=reward, terminated=True, info=info)
        rollout = Rollout(task=Task(env_id="agent"), steps=tuple(steps))
        if self._out is not None:
            # Not under its key, by which requests are made.
            write_rollouts([rollout], self._out / f"{secrets.token_hex(8)}.jsonl")
        return rollout

    @property
    def url(self) -> str:
        """Address of the gateway, once it listens."""
        return url_of(self.host, self.port)

    def root_url(self, session: Session) -> str:
        """Address of the session without "/v1", as Anthropic's SDK takes it."""
        return f"{self.url}/s/{session.id}"

    def base_url(self, session: Session) -> str:
        """Address of the session with "/v1", as OpenAI's SDK takes it."""
        return f"{self.root_url(session)}/v1"

    async def start(self, bound: socket.socket | None = None) -> None:
        """Listen, unless it does already. Raises ServerError for a port in use.

        bound: a socket with the gateway's address; None makes one.
        """
        # Episodes that begin at once all start it; each must find it listening, or get the error.
        async with self._starting:
            if self._runner is not None:
                return
            with closing(bound or bound_socket(self.host, self.port)) as listening:
                # A handler ends when its client leaves: the reply is then free for its retry.
                runner = web.AppRunner(
                    self.app(),
                    handler_cancellation=True,
                    access_log=None,
                    shutdown_timeout=SHUTDOWN_S,
                )
                await runner.setup()
                self.port = listening.getsockname()[1]
                # A copy, since the block closes the socket.
                await web.SockSite(runner, listening.dup(), backlog=BACKLOG).start()
            self._runner = runner

    async def aclose(self) -> None:
        """End all sessions, and stop listening."""
        for session in list(self.sessions.values()):
            self.close(session)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @asynccontextmanager
    async def running(self, bound: socket.socket | None = None) -> AsyncIterator[Gateway]:
        """Listen while the block runs. bound: as of `start`."""
        await self.start(bound)
        try:
            yield self
        finally:
            await self.aclose()

    def app(self) -> web.Application:
        """The routes as an application of aiohttp."""
        app = make_app(self)
        self._routes(app)
        return app

    def _session(self, id: str, sampling: Sampling | None) -> Session:
        return Session(id, self.engine, self.prompts, sampling=sampling, max_tokens=self.max_tokens)


GATEWAY = web.AppKey("gateway", Gateway)


class _Close(msgspec.Struct, kw_only=True):
    reward: float = 0.0


@dataclass(frozen=True, slots=True)
class Dialect:
    """A format of requests and responses.

    read: the request of a body. whole, events: the response, with log-probs in the format of chat
    completions if they were requested.
    """

    read: Callable[[bytes], Request]
    whole: Callable[[Response, Json | None], Json]
    events: Callable[[Response, Json | None], Iterator[Event]]


DIALECTS = {
    "/v1/chat/completions": Dialect(chat.read, chat.whole, chat.events),
    "/v1/responses": Dialect(responses.read, responses.whole, responses.events),
    "/v1/messages": Dialect(messages.read, messages.whole, messages.events),
}


def make_app(gateway: Gateway) -> web.Application:
    """The routes of a gateway, as an application of aiohttp."""
    app = web.Application(middlewares=[_with_errors], client_max_size=BODY_BYTES)
    app[GATEWAY] = gateway
    for prefix in ("", "/s/{session}"):
        for path, dialect in DIALECTS.items():
            app.router.add_post(prefix + path, partial(_respond, dialect=dialect))
        app.router.add_post(f"{prefix}/v1/messages/count_tokens", _count_tokens)
        app.router.add_get(f"{prefix}/v1/models", _models)
        app.router.add_post(f"{prefix}/mcp", partial(_tools, serve=serve_mcp))
        app.router.add_get(f"{prefix}/tools", partial(_tools, serve=serve_list))
        app.router.add_post(f"{prefix}/tools/{{name}}", partial(_tools, serve=serve_call))
    app.router.add_get("/health", _health)
    app.router.add_get("/version", _version)
    if gateway.token:
        app.router.add_post("/sessions", with_token(_open_session))
        app.router.add_post("/sessions/{key}/close", with_token(_close_session))
    return app


def with_token(handle: Handler) -> Handler:
    """The handler for requests that have the gateway's token; others get status 401."""

    async def checked(request: web.Request) -> web.StreamResponse:
        request.app[GATEWAY].require_token(bearer_of(request))
        return await handle(request)

    return checked


def bearer_of(request: web.Request) -> str:
    """The API key of a request, as OpenAI's SDKs send it; "" without one."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def json_response(content: object, status: int = 200) -> web.Response:
    """The content as JSON."""
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, content_type="application/json")


async def _health(request: web.Request) -> web.Response:
    return web.Response()


async def _version(request: web.Request) -> web.Response:
    return json_response({"version": ludic_gym.__version__})


async def _models(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    card = {"id": gateway.model, "object": "model", "created": 0, "owned_by": "ludic"}
    card |= {"root": gateway.model, "max_model_len": gateway.max_positions}
    return json_response({"object": "list", "data": [card]})


async def _open_session(request: web.Request) -> web.Response:
    """Addresses and key of a new session."""
    gateway = request.app[GATEWAY]
    session = gateway.open()
    urls = {"base_url": gateway.base_url(session), "root_url": gateway.root_url(session)}
    return json_response({"key": session.id, **urls})


async def _close_session(request: web.Request) -> web.Response:
    """End a session; its rollout. The body may have its reward."""
    gateway = request.app[GATEWAY]
    session = gateway.session(request.match_info["key"])
    body = body_of(await request.read() or b"{}", _Close)
    # JSON's numbers may be infinite for Python, which the file of the rollout could not hold.
    if not math.isfinite(body.reward):
        raise ConfigError(f"reward={body.reward} must be finite")
    # First: a call that is answered after this is not in the session, and so not missing below.
    gateway.close(session)
    rollout = await asyncio.to_thread(gateway.save, session, body.reward)
    return json_response(to_json(rollout))


def _session_of(request: web.Request) -> Session:
    """The session by URL, header or API key. Raises SessionOver for none or an unknown one."""
    named = request.match_info.get("session") or request.headers.get(HEADER) or ""
    key = request.headers.get("x-api-key") or bearer_of(request)
    return request.app[GATEWAY].session_of(named, key)


async def _count_tokens(request: web.Request) -> web.Response:
    """Number of tokens of a request's prompt, as sampling would have it; nothing is sampled."""
    session = _session_of(request)
    prompt_ids = session.prompt_ids(messages.read(await request.read()))
    return json_response({"input_tokens": len(prompt_ids)})


async def _tools(
    request: web.Request,
    serve: Callable[[web.Request, ToolServer], Awaitable[web.Response]],
) -> web.Response:
    """Tools of the session's environment."""
    session = _session_of(request)
    if session.tools is None:
        raise ConfigError("this session has no environment, and so no tools")
    return await serve(request, session.tools)


async def _respond(request: web.Request, dialect: Dialect) -> web.Response:
    """The response to a request, whole or as events; events come once the reply is whole."""
    session, data = _session_of(request), await request.read()
    wanted = dialect.read(data)
    is_retry = request.headers.get(RETRIES, "0") != "0"
    path = request.path.rpartition("/v1/")[2].encode()
    # With the route, since one body may be a request in two dialects.
    pending = session.pending(wanted, path + b"\n" + data, is_retry=is_retry)
    pending.clients += 1
    try:
        response = await session.response(pending)
        if request.transport is not None and not request.transport.is_closing():
            session.deliver(pending)
    finally:
        pending.clients -= 1
        if not session.id:
            # No retry can name it: a client that has left makes room for others.
            session.close()
    logprobs = _logprobs(response, session.prompts) if wanted.logprobs else None
    if not wanted.stream:
        return json_response(dialect.whole(response, logprobs))
    return web.Response(
        body=_sse(dialect.events(response, logprobs)),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache"},
    )


def _sse(events: Iterable[Event]) -> bytes:
    """The events in the format of server-sent events."""
    data = b""
    for name, content in events:
        if name:
            data += f"event: {name}\n".encode()
        body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        data += b"data: " + body + b"\n\n"
    return data


def _logprobs(response: Response, prompts: Prompts | None) -> Json | None:
    """Log-probs of a reply, nats, one per sampled token, also of those that are no text."""
    ids, values = response.completion.completion_ids, response.completion.logprobs
    if prompts is None or ids is None or values is None:
        return None
    texts = [prompts.text([token], with_specials=True) for token in ids]
    content = [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for text, value in zip(texts, values, strict=True)
    ]
    return {"content": content, "refusal": None}


@web.middleware
async def _with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in the dialect of the route; any other exception is a bug, logged, and a 500."""
    # Web pages can send requests to addresses of this machine.
    host = request.app[GATEWAY].host
    if fault := page_fault(host, request.host, request.headers.get("Origin")):
        return json_response(error_body(fault, 403, is_anthropic=False), 403)
    try:
        return await handler(request)
    except web.HTTPException as error:
        text, status = f"{request.method} {request.path}: {error.reason}", error.status
        is_too_long = False
    except LudicError as error:
        text, status, is_too_long = str(error), _status_of(error), isinstance(error, PromptTooLong)
    is_anthropic = "/v1/messages" in request.path
    body = error_body(text, status, is_anthropic=is_anthropic, is_too_long=is_too_long)
    return json_response(body, status)


def _status_of(error: LudicError) -> int:
    """HTTP status of an error, by what SDKs do: they send 5xx again, and 400 and 401 never."""
    match error:
        case SessionOver():
            return 401
        case ModelNotFound():
            return 404
        case ConfigError() | PromptTooLong():
            return 400
        case ClientError():
            # A request that the engine's server refuses is no better when it is sent again.
            return 400 if error.status == 400 else 502
    return 500


def error_body(text: str, status: int, *, is_anthropic: bool, is_too_long: bool = False) -> Json:
    """An error in the form of OpenAI, or of Anthropic. is_too_long: of a prompt without room."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    # Python may hold halves of surrogate pairs, which JSON cannot.
    text = text.encode(errors="replace").decode()
    if is_anthropic:
        return {"type": "error", "error": {"type": kind, "message": text}}
    # Agent frameworks shorten their history at this code.
    code = "context_length_exceeded" if is_too_long else None
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}
