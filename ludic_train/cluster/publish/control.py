"""The routes by which a vLLM server is paused, given params, and resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ludic_gym.clients.transport import HttpTransport
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_train.errors import PublishError
from ludic_train.server_tokens import KEY_VARIABLE, token_of

# Part of vLLM's error for a second publisher.
SESSION_OPEN = "already active"


class ControlClient:
    """Control routes of one server. Every method raises PublishError for a status other than 200.

    limit_s: time limit of a request.
    """

    def __init__(self, url: str, *, limit_s: float = math.inf) -> None:
        self.url = url
        # No retries, because a phase that may have happened must not happen twice. No connection
        # is reused: vLLM closes one after an error, perhaps while the next request is on it.
        options = HttpOptions(
            max_retries=0, max_wait_s=0, keep_alive=False, request_timeout_s=limit_s
        )
        self._http = HttpTransport([url], KEY_VARIABLE, options)

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self._http.close()

    async def get(self, path: str) -> dict[str, Any]:
        """JSON object of a route; {} for any other response."""
        return _object(await self.text("GET", path))

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `get`, by POST."""
        return _object(await self.text("POST", path, body))

    async def text(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Response of a route as text.

        method: "GET" or "POST". path: with its query. body: sent as JSON.
        """
        try:
            return await self._http.text(method, path, body, token=token_of(self.url))
        except ClientError as error:
            message = str(error).removeprefix(self.url)
            if " returned 404" in message:
                message += "; start the server with `ludic serve`, or with VLLM_SERVER_DEV_MODE=1"
            raise PublishError(message) from error

    async def pause(self) -> None:
        """Hold all requests where they are, and clear the prefix cache."""
        await self.post("/pause?mode=keep&clear_cache=true")

    async def resume(self) -> None:
        """Continue all requests."""
        await self.post("/resume")

    async def start(self) -> None:
        """Open a session, in which params can be sent; one at a time can be open."""
        try:
            await self.post("/start_weight_update")
        except PublishError as error:
            if SESSION_OPEN not in str(error):
                raise
            raise PublishError(
                f"{error}; another publisher uses the server. If it died during an update, call "
                "take_over()"
            ) from error

    async def update(self, update_info: Mapping[str, Any]) -> None:
        """Announce params, in the form of the server's engine; return when they are checked."""
        await self.post("/update_weights", {"update_info": update_info})

    async def finish(self, version: int) -> None:
        """Load the params, close the session, and check the version that the server has then."""
        await self.post("/finish_weight_update", {"weight_version": str(version)})
        await self.require_version(version)

    async def require_version(self, version: int) -> None:
        """Raise PublishError for a server that reports another version."""
        name = (await self.get("/weight_info")).get("weight_version")
        if name != str(version):
            raise PublishError(f"the server has version {name!r} after version {version} was sent")

    async def abort(self) -> None:
        """Close a session and drop its params. The response is always an error: it closes it."""
        with suppress(PublishError):
            await self.update({"abort": True})

    async def config(self) -> dict[str, Any]:
        """The server's configuration, in vLLM's terms; {} if it does not say."""
        config = (await self.get("/server_info?config_format=json")).get("vllm_config")
        return config if isinstance(config, dict) else {}

    async def world_size(self) -> int:
        """Number of workers; each receives the params."""
        return int((await self.get("/get_world_size"))["world_size"])


def backend_of(config: Mapping[str, Any]) -> str:
    """Name of the engine by which a server takes params; "" if its configuration has none."""
    return str((config.get("weight_transfer_config") or {}).get("backend", ""))


def _object(text: str) -> dict[str, Any]:
    """The JSON object in the text; {} for anything else, such as the empty body of /health."""
    try:
        response = json.loads(text)
    except ValueError:
        return {}
    return response if isinstance(response, dict) else {}
