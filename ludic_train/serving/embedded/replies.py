"""Replies as JSON, errors too; nothing that a request holds ends the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from ludic_gym.errors import ConfigError, LudicError
from ludic_train.errors import ModelNotFound, PromptTooLong
from ludic_train.serving.embedded.served import Served

SERVED = web.AppKey("served", Served)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NAMES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


def reply(content: object, status: int = 200) -> web.Response:
    """The content as JSON."""
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, content_type="application/json")


def refused(status: int, message: str) -> web.Response:
    """An error in vLLM's form."""
    kind = NAMES.get(status, "Error")
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": status}
    return reply({"error": error}, status)


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What is the client's fault is said with 400 or 404, what failed here with 500."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refused(error.status, f"{request.method} {request.path}: {error.reason}")
    except ModelNotFound as error:
        return refused(404, str(error))
    except (ConfigError, PromptTooLong) as error:
        return refused(400, str(error))
    except LudicError as error:
        return refused(500, str(error))
