"""The routes by which a vLLM server is paused, given params, and resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludic_gym.errors import ConfigError
from ludic_train.errors import PublishError

if TYPE_CHECKING:
    import aiohttp

EXCERPT = 400
# What vLLM answers to a second publisher.
SESSION_OPEN = "already active"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """How long each phase of a publication may take, in seconds, per server.

    update: for one chunk of params. finish: the swap, with all that vLLM makes of params.
    """

    connect: float = 60.0
    pause: float = 60.0
    start: float = 60.0
    update: float = 300.0
    finish: float = 300.0
    resume: float = 60.0

    def __post_init__(self) -> None:
        for phase in self.__slots__:
            if not getattr(self, phase) > 0:
                raise ConfigError(f"limit of {phase} must be above 0, got {getattr(self, phase)}")


class ControlClient:
    """One server's routes. Every method raises PublishError for any answer but a good one."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def get(self, path: str) -> dict[str, Any]:
        """What a route answers to GET."""
        return await self._asked("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a route answers to POST."""
        return await self._asked("POST", path, body)

    async def pause(self, mode: str = "keep") -> None:
        """Hold all requests where they are, and forget what was computed for their prompts."""
        await self.post(f"/pause?mode={mode}&clear_cache=true")

    async def resume(self) -> None:
        """Let all requests go on."""
        await self.post("/resume")

    async def connect(self, init_info: Mapping[str, Any]) -> None:
        """Have the server's engine meet the trainer."""
        await self.post("/init_weight_transfer_engine", {"init_info": init_info})

    async def start(self) -> None:
        """Open a session, in which params can come."""
        await self.post("/start_weight_update")

    async def update(self, update_info: Mapping[str, Any]) -> None:
        """Announce params; returns when they have come."""
        await self.post("/update_weights", {"update_info": update_info})

    async def finish(self, version: int) -> None:
        """Put the params in, close the session, and see that the server says so."""
        await self.post("/finish_weight_update", {"weight_version": str(version)})
        said = (await self.get("/weight_info")).get("weight_version")
        if said != str(version):
            raise PublishError(f"the server says it has version {said!r} after taking {version}")

    async def abort(self) -> None:
        """Close a session whatever is in it. An error is what closes it: it is always answered."""
        try:
            await self.update({"abort": True})
        except PublishError:
            return

    async def call_workers(self, method: str, **kwargs: object) -> dict[str, Any]:
        """What the workers' method returns."""
        return await self.post("/collective_rpc", {"method": method, "kwargs": kwargs})

    async def world_size(self) -> int:
        """Workers that each take the params."""
        return int((await self.get("/get_world_size"))["world_size"])

    async def text(self, path: str) -> str:
        """What a route answers to GET, as it is."""
        return await self._answer("GET", path, None)

    async def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return _object(await self._answer(method, path, body))

    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> str:
        import aiohttp

        try:
            async with self._session.request(method, self.url + path, json=body) as response:
                text = await response.text()
        except aiohttp.ClientError as error:
            raise PublishError(f"{path}: {type(error).__name__}: {error}") from error
        if response.status == 404:
            raise PublishError(
                f"{path} is unknown there: start the server with `ludic serve`, or with "
                "VLLM_SERVER_DEV_MODE=1"
            )
        if response.status != 200:
            raise PublishError(f"{path} answered {response.status}: {_reason(text)}")
        return text


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a route answers; some answer a sentence, some nothing."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _reason(text: str) -> str:
    """The message in an error's body, or the start of the body."""
    try:
        body = json.loads(text)
        message = str(body["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = text
    return " ".join(message[:EXCERPT].split())
