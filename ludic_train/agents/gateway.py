"""The gateway: an address for agent programs, and the sessions behind it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from ludic_gym.types import Sampling
from ludic_train.agents.prompts import Prompts
from ludic_train.agents.server import make_app
from ludic_train.agents.session import Engine, Session
from ludic_train.errors import SessionOver
from ludic_train.processes import bound_socket, url_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEADLINE_S = 600.0
# Sessions end first, so that only their last responses are still being sent.
SHUTDOWN_S = 0.2
# Connections that wait to be accepted: hundreds of agents may start at once.
BACKLOG = 1024


class Gateway:
    """OpenAI's and Anthropic's APIs in front of an engine that takes and returns token ids.

        async with Gateway(client, tokenizer).running() as gateway:
            session = gateway.open()
            agent = openai.AsyncOpenAI(base_url=gateway.base_url(session), api_key=session.id)

    engine: `LocalChatClient`, or `VLLMTokenClient` for servers. tokenizer: of its model.
    model: the name that GET /v1/models returns; requests may name any model.
    max_tokens: longest reply of a request that names no limit.
    max_positions: of the model; replies are limited to what a prompt leaves. None for no limit.
    deadline_s: seconds after which a session ends by itself. host, port: of the address; port 0
        takes a free one.
    routes: adds further ones to the application.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model: str = "policy",
        max_tokens: int = 1024,
        max_positions: int | None = None,
        deadline_s: float = DEADLINE_S,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.engine, self.model = engine, model
        self.prompts = Prompts(tokenizer, max_positions)
        self.max_tokens, self.deadline_s = max_tokens, deadline_s
        self.host, self.port = host, port
        self.routes: Callable[[web.Application], None] = lambda app: None
        self.sessions: dict[str, Session] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    def open(self, *, sampling: Sampling | None = None, deadline_s: float | None = None) -> Session:
        """A new session; the gateway's event loop must run.

        sampling: as of `Session`. deadline_s: seconds until it ends by itself.
        """
        # Longer than a program could guess: a holder of the key acts for the episode.
        id = f"sk-ludic-{secrets.token_urlsafe(24)}"
        session = Session(
            id, self.engine, self.prompts, sampling=sampling, max_tokens=self.max_tokens
        )
        self.sessions[id] = session
        loop = asyncio.get_running_loop()
        seconds = self.deadline_s if deadline_s is None else deadline_s
        self._timers[id] = loop.call_later(seconds, self.close, session)
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

    async def start(self) -> None:
        """Listen, unless it does already. Raises ServerError for a port in use."""
        # Episodes that begin at once all start it; each must find it listening, or get the error.
        async with self._starting:
            if self._runner is not None:
                return
            with bound_socket(self.host, self.port) as bound:
                # A handler ends when its client leaves: the reply is then free for its retry.
                runner = web.AppRunner(
                    self.app(),
                    handler_cancellation=True,
                    access_log=None,
                    shutdown_timeout=SHUTDOWN_S,
                )
                await runner.setup()
                self.port = bound.getsockname()[1]
                # A copy, since the block closes the socket.
                await web.SockSite(runner, bound.dup(), backlog=BACKLOG).start()
            self._runner = runner

    async def aclose(self) -> None:
        """End all sessions, and stop listening."""
        for session in list(self.sessions.values()):
            self.close(session)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Gateway]:
        """Listen while the block runs."""
        await self.start()
        try:
            yield self
        finally:
            await self.aclose()

    def app(self) -> web.Application:
        """The routes for agents."""
        app = make_app(self.session, self.model, self.host)
        self.routes(app)
        return app
