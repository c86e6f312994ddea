"""Routes of the gateway: requests of agent programs, in the dialect of each route."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ludic_gym.errors import ClientError, ConfigError, LudicError, PromptTooLong
from ludic_gym.tools.mcp_server import ToolServer, serve_call, serve_list, serve_mcp
from ludic_gym.web_pages import page_fault
from ludic_train.agents.dialects import chat, completions, messages, responses
from ludic_train.agents.prompts import Prompts
from ludic_train.agents.session import Draft, Session
from ludic_train.agents.streaming import TextStream
from ludic_train.agents.types import Answer, Event, Json, Piece, Reply, Request
from ludic_train.errors import SessionOver

logger = logging.getLogger(__name__)
BODY_BYTES = 8 * 2**20
FindSession = Callable[[str], Session]
FIND_SESSION: web.AppKey[FindSession] = web.AppKey("find_session")
HEADER = "X-Ludic-Session"
# Set by the SDKs of OpenAI and Anthropic.
RETRIES = "x-stainless-retry-count"


class _Events(Protocol):
    def begin(self, prompt_tokens: int) -> Iterator[Event]: ...
    def piece(self, piece: Piece, index: int = 0) -> Iterator[Event]: ...
    def end(self, answer: Answer, logprobs: Sequence[Json | None]) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """A format of requests and responses.

    read: the request of a body. whole: the response. events: makes the events of a stream.
    is_anthropic: errors have Anthropic's form.
    """

    read: Callable[[bytes], Request]
    whole: Callable[[Answer, Sequence[Json | None]], Json]
    events: Callable[[str, int, Request], _Events]
    is_anthropic: bool = False


DIALECTS = {
    "/v1/chat/completions": Dialect(chat.read, chat.whole, chat.Events),
    "/v1/completions": Dialect(completions.read, completions.whole, completions.Events),
    "/v1/responses": Dialect(responses.read, responses.whole, responses.Events),
    "/v1/messages": Dialect(messages.read, messages.whole, messages.Events, is_anthropic=True),
}
COUNT_TOKENS = "/v1/messages/count_tokens"


def make_app(find_session: FindSession, model: str, host: str) -> web.Application:
    """The routes for agents, below "" and below "/s/SESSION".

    find_session: the session of an id; raises SessionOver. model: its name. host: of the address.
    """
    app = web.Application(
        middlewares=[_refusing_pages(host), _with_errors], client_max_size=BODY_BYTES
    )
    app[FIND_SESSION] = find_session
    for prefix in ("", "/s/{session}"):
        for path, dialect in DIALECTS.items():
            app.router.add_post(prefix + path, partial(_respond, dialect=dialect))
        app.router.add_post(prefix + COUNT_TOKENS, _count_tokens)
        app.router.add_post(prefix + "/mcp", partial(_tools, serve=serve_mcp))
        app.router.add_get(prefix + "/tools", partial(_tools, serve=serve_list))
        app.router.add_post(prefix + "/tools/{name}", partial(_tools, serve=serve_call))
        app.router.add_get(prefix + "/v1/models", partial(_models, model=model))
    app.router.add_get("/health", _health)
    return app


def json_response(content: object, status: int = 200) -> web.Response:
    """The content as JSON."""
    # Halves of surrogate pairs come out of no tokenizer, but msgspec would raise for them.
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, content_type="application/json")


def session_of(request: web.Request) -> Session:
    """The session by URL, header or API key. Raises SessionOver for none or an unknown one."""
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    given = (
        request.match_info.get("session"),
        request.headers.get(HEADER),
        request.headers.get("x-api-key"),
        bearer,
    )
    # The first that is there and not the first that fits: a forged one must not fall back.
    return request.app[FIND_SESSION](next(filter(None, given), ""))


async def _health(request: web.Request) -> web.Response:
    return web.Response()


async def _models(request: web.Request, model: str) -> web.Response:
    card = {"id": model, "object": "model", "created": 0, "owned_by": "ludic"}
    return json_response({"object": "list", "data": [card]})


async def _count_tokens(request: web.Request) -> web.Response:
    """Number of tokens of a request's prompt, as sampling would have it; nothing is sampled."""
    session = session_of(request)
    prompt = session.prompt(messages.read(await request.read()))
    return json_response({"input_tokens": len(prompt.ids)})


async def _tools(
    request: web.Request,
    serve: Callable[[web.Request, ToolServer], Awaitable[web.Response]],
) -> web.Response:
    """Tools of the session's environment."""
    session = session_of(request)
    if session.tools is None:
        raise ConfigError("this session has no environment, and so no tools")
    return await serve(request, session.tools)


async def _respond(request: web.Request, dialect: Dialect) -> web.StreamResponse:
    """The answer to a request, whole or as events."""
    session, data = session_of(request), await request.read()
    wanted = dialect.read(data)
    is_retry = request.headers.get(RETRIES, "0") != "0"
    path = request.path.rpartition("/v1/")[2].encode()
    # With the route, since one body may be a request in two dialects.
    draft = session.draft(wanted, path + b"\n" + data, is_retry=is_retry)
    draft.clients += 1
    try:
        if wanted.stream:
            return await _streamed(request, session, draft, dialect)
        answer = await _answer(draft)
        _deliver(request, session, draft, answer)
        return json_response(dialect.whole(answer, _logprobs(answer, session.prompts)))
    finally:
        draft.clients -= 1


async def _answer(draft: Draft) -> Answer:
    """The answer; sampling continues if the client leaves. Raises SessionOver if that has ended."""
    assert draft.task is not None
    try:
        return await asyncio.shield(draft.task)
    except asyncio.CancelledError:
        if draft.task.cancelled():
            raise SessionOver("this session ended while the reply was sampled") from None
        raise


def _deliver(request: web.Request, session: Session, draft: Draft, answer: Answer) -> None:
    """Note that the client gets the answer, unless it has left."""
    if request.transport is not None and not request.transport.is_closing():
        session.deliver(draft, answer)


async def _streamed(
    request: web.Request, session: Session, draft: Draft, dialect: Dialect
) -> web.StreamResponse:
    """The answer as server-sent events.

    The first client gets tokens as they are sampled; one that sends the request again gets all of
    its answer at the end.
    """
    # A client that has left has taken tokens with it, so that the queue's rest is no whole reply.
    pieces = None if draft.is_read else _sampled_pieces(session, draft)
    draft.is_read = True
    # Errors have a status of their own only before the first event.
    first = await anext(pieces, None) if pieces else None
    if first is None:
        await _answer(draft)
    response = web.StreamResponse(headers={"Cache-Control": "no-cache"})
    response.content_type = "text/event-stream"
    await response.prepare(request)
    # A client that leaves costs its own reply, which is not delivered then.
    with suppress(ConnectionResetError):
        events = dialect.events(draft.name, int(time.time()), draft.request)
        await _send(response, events.begin(len(draft.prompt.ids)))
        try:
            sent = 0
            if pieces is not None and first is not None:
                async for portion in _chained(first, pieces):
                    await _send(response, (e for piece in portion for e in events.piece(piece)))
                    sent += len(portion)
            answer = await _answer(draft)
        except LudicError as error:
            await _send(response, [_failed(dialect, error)])
            return response
        for index, reply in enumerate(answer.replies if not sent else ()):
            parts = _pieces_of(reply)
            await _send(response, (e for piece in parts for e in events.piece(piece, index)))
        _deliver(request, session, draft, answer)
        await _send(response, events.end(answer, _logprobs(answer, session.prompts)))
        await response.write_eof()
    return response


async def _chained(
    first: list[Piece], pieces: AsyncIterator[list[Piece]]
) -> AsyncIterator[list[Piece]]:
    yield first
    async for portion in pieces:
        yield portion


async def _sampled_pieces(session: Session, draft: Draft) -> AsyncIterator[list[Piece]]:
    """Pieces of the one reply, as soon as they are certain; none if the engine gives no tokens."""
    # The engine's tokens of several choices could not be separated in one queue.
    if draft.request.n > 1:
        return
    stream = TextStream(session.prompts.text, draft.request.stop)
    reader = draft.reader()
    pieces = reader.feed(draft.prompt.begun)
    any_token = False
    while tokens := await _arrived(draft.tokens):
        any_token = True
        pieces += reader.feed(stream.feed(tokens))
        if shown := _shown(pieces):
            yield shown
        pieces = []
    if not any_token:
        return
    answer = await _answer(draft)
    text = answer.replies[0].completion.text
    yield _shown([*pieces, *reader.feed(stream.end(text)), *reader.end()])


async def _arrived(queue: asyncio.Queue[int | None]) -> list[int]:
    """All tokens that are there, and the first if there is none yet; none at the end."""
    first = await queue.get()
    waiting = [queue.get_nowait() for _ in range(queue.qsize())]
    tokens = [token for token in (first, *waiting) if token is not None]
    if tokens and None in waiting:
        # The end comes back as an empty list of its own, after these tokens.
        queue.put_nowait(None)
    return tokens


def _shown(pieces: list[Piece]) -> list[Piece]:
    """The pieces without empty ones."""
    return [piece for piece in pieces if piece.text or piece.call]


def _pieces_of(reply: Reply) -> list[Piece]:
    """A whole reply in pieces."""
    pieces = [Piece("reasoning", reply.reasoning)] if reply.reasoning else []
    pieces += [Piece("text", reply.content)] if reply.content else []
    return [*pieces, *(Piece("call", call=call) for call in reply.calls)]


async def _send(response: web.StreamResponse, events: Iterator[Event] | list[Event]) -> None:
    """Write the events in one piece."""
    data = b""
    for name, content in events:
        if name:
            data += f"event: {name}\n".encode()
        body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        data += b"data: " + body + b"\n\n"
    if data:
        await response.write(data)


def _logprobs(answer: Answer, prompts: Prompts) -> list[Json | None]:
    """Log-probs of each choice in the format of chat completions; None where not requested."""
    if not answer.request.logprobs:
        return [None] * len(answer.replies)
    return [_token_logprobs(reply, prompts) for reply in answer.replies]


def _token_logprobs(reply: Reply, prompts: Prompts) -> Json:
    """Log-probs of a reply, nats, one per sampled token, also of those that are no text."""
    ids, values = reply.completion.completion_ids or (), reply.completion.logprobs or ()
    texts = [prompts.text([token], with_specials=True) for token in ids]
    return {
        "content": [
            {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
            for text, value in zip(texts, values, strict=True)
        ],
        "refusal": None,
    }


@web.middleware
async def _with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in the dialect of the route; any other exception is a bug, logged, and a 500."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        found, status = f"{request.method} {request.path}: {error.reason}", error.status
    # Statuses below are chosen by what SDKs do: they send 5xx again, and 400 and 401 never.
    except SessionOver as error:
        found, status = str(error), 401
    except (ConfigError, PromptTooLong) as error:
        found, status = str(error), 400
    except ClientError as error:
        # A request that the engine's server refuses is no better when it is sent again.
        found, status = str(error), 400 if error.status == 400 else 502
    except LudicError as error:
        found, status = str(error), 500
    is_anthropic = "/v1/messages" in request.path
    return json_response(error_body(found, status, is_anthropic=is_anthropic), status)


def error_body(text: str, status: int, *, is_anthropic: bool) -> Json:
    """An error in the form of OpenAI, or of Anthropic."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    # Python may hold halves of surrogate pairs, which JSON cannot.
    text = text.encode(errors="replace").decode()
    if is_anthropic:
        return {"type": "error", "error": {"type": kind, "message": text}}
    # Agent frameworks shorten their history at this code.
    code = "context_length_exceeded" if "maximum context length" in text else None
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def _failed(dialect: Dialect, error: LudicError) -> Event:
    """The event of an error in the middle of a stream."""
    return "error", error_body(str(error), 502, is_anthropic=dialect.is_anthropic)


def _refusing_pages(host: str) -> Middleware:
    """A middleware that refuses web pages, which can send requests to addresses of this machine."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if fault := page_fault(host, request.host, request.headers.get("Origin")):
            return json_response(error_body(fault, 403, is_anthropic=False), 403)
        return await handler(request)

    return guard
