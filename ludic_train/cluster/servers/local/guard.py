"""Requests that the server refuses: those of web pages, and control requests without its token."""

from __future__ import annotations

import hmac
import os

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ludic_gym.web_pages import page_fault
from ludic_train.cluster.servers.local.responses import refused
from ludic_train.server_tokens import KEY_VARIABLE

SAMPLING = frozenset({"/v1/chat/completions", "/v1/completions", "/inference/v1/generate"})


def guarded(host: str, token: str) -> Middleware:
    """A middleware that lets programs in, and the trainer where params are at stake.

    host: address that the server listens on. token: of all POST routes but SAMPLING, and of these
    too where KEY_VARIABLE is set.
    """
    needs_token = frozenset[str]() if os.environ.get(KEY_VARIABLE) else SAMPLING

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if fault := page_fault(host, request.host, request.headers.get("Origin")):
            return refused(403, fault)
        if request.method != "POST":
            return await handler(request)
        if request.body_exists and request.content_type != "application/json":
            return refused(415, f"Content-Type {request.content_type!r} is not application/json")
        if request.path not in needs_token and not _has(request, token):
            return refused(
                401,
                f"{request.path} needs the server's token: be the user who started it, or set "
                f"{KEY_VARIABLE} to one value for the server and for its trainer",
            )
        return await handler(request)

    return guard


def _has(request: web.Request, token: str) -> bool:
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    # In constant time: otherwise response times would give the token away letter by letter.
    return hmac.compare_digest(given.encode(), token.encode())
