"""JSON over HTTP to one or several servers: routing, time limits, retries, accounting."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ludic_gym.clients.faults import status_within
from ludic_gym.clients.responses import (
    BUSY,
    TryAgainError,
    check_status,
    json_object,
    retry_after_s,
    used_up_s,
)
from ludic_gym.clients.routing import Pace, Router, Server, droppable
from ludic_gym.clients.streams import whole_text
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions

if TYPE_CHECKING:
    # aiohttp takes longer to import than all of ludic_gym, so it is imported at the first request.
    import aiohttp

# Seconds between two looks at the servers' figures, and the longest that one may take.
LOOK_S, LOOK_LIMIT_S = 1.0, 0.5
T = TypeVar("T")


@dataclass(slots=True)
class Usage:
    """Counts of a client so far.

    requests: those with a response. failures: those without one, for any reason. Each request is
        one of both, however often it was sent.
    retries: attempts after the first one of a request.
    prompt_tokens, completion_tokens: as the servers count them; 0 for a server that does not.
    cached_tokens: those of the prompts that the servers had in their cache.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class _Request(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None
    token: str | None = None
    prefix: Sequence[Hashable] = ()


class _Wire(NamedTuple):
    """Connections and slots of one event loop, and the generator that ends with the loop."""

    session: aiohttp.ClientSession
    slots: asyncio.Semaphore
    pace_by_url: dict[str, Pace]
    keeper: AsyncGenerator[None, None]


class HttpTransport:
    """JSON over HTTP, each request to the server that `Router` chooses.

    Works from several event loops, each with its own connections.
    urls: addresses that the paths are appended to.
    api_key_env: the environment variable that holds the key; unset means none is sent.
    headers: the headers of all requests, by the key or None.
    usage: counts over all servers.
    Raises ConfigError without an address, or for one that is not http(s).
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key_env: str,
        options: HttpOptions | None = None,
        *,
        headers: Callable[[str | None], Mapping[str, str]] | None = None,
    ) -> None:
        self.api_key_env = api_key_env
        self._headers = headers or bearer
        self.options = options or HttpOptions()
        self.usage = Usage()
        self._router = Router()
        self._next_look = 0.0
        # Numbers of the requests, by which they take turns.
        self._tickets = count()
        # Servers that have no figures, such as those of OpenAI.
        self._without_figures: set[str] = set()
        # By event loop, because a session works on its own loop only.
        self._wires: dict[asyncio.AbstractEventLoop, _Wire] = {}
        # aiohttp warns about sessions that are collected without a close.
        weakref.finalize(self, _close_left_open, self._wires)
        self.use(urls)

    def use(self, urls: Sequence[str]) -> None:
        """Use these servers only; requests in flight to others are sent again, to one of these.

        A server that was in use before keeps its count of requests in flight.
        Raises ConfigError without an address, or for one that is not http(s).
        """
        if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
            raise ConfigError(f"base_url is one or more http(s) addresses, got {urls!r}")
        self._router.use([url.rstrip("/") for url in urls])

    @property
    def used(self) -> list[str]:
        """The addresses of the servers in use."""
        return [server.url for server in self._router.servers]

    async def post(
        self, path: str, body: Mapping[str, Any], *, prefix: Sequence[Hashable] = ()
    ) -> dict[str, Any]:
        """Send a JSON object; the JSON object in the response.

        prefix: the prompt in pieces, as of `Router.choose`.
        Raises ClientError if all attempts fail, if the request takes too long, or if the response
        has another status than 200 or is no JSON object.
        """
        return await self._counted(_Request("POST", path, body, prefix=prefix), json_object)

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON object at the path. Raises ClientError as `post` does."""
        return await self._counted(_Request("GET", path, None), json_object)

    async def text(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
    ) -> str:
        """Text of a response that need not be JSON, such as metrics or an empty one.

        method: "GET", "POST" and so on. token: a bearer token for this request, in place of the
        one of `api_key_env`.
        Raises ClientError if all attempts fail, or for another status than 200.
        """
        return await self._counted(_Request(method, path, body, token), lambda url, text: text)

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        here = asyncio.get_running_loop()
        for loop, wire in list(self._wires.items()):
            # A session can be closed on its own loop only; that of an ended loop is closed.
            if loop is here:
                await wire.session.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(wire.session.close(), loop)
                await asyncio.wrap_future(closing)
        self._wires.clear()

    async def _counted(self, request: _Request, read: Callable[[str, str], T]) -> T:
        """The response as `read` returns it for address and text; counted in `usage`."""
        try:
            response = read(*await self._persistent(request))
        # Cancellation too: every request is counted once.
        except BaseException:
            self.usage.failures += 1
            raise
        self.usage.requests += 1
        return response

    async def _persistent(self, request: _Request) -> tuple[str, str]:
        """Address and text of the response."""
        tried: Server | None = None
        failed = 0
        ticket = next(self._tickets)
        await self._look()
        while True:
            tried = self._router.choose(request.prefix, tried=tried)
            try:
                return await self._sent(tried, request, ticket)
            except TryAgainError as failure:
                error = failure
            # An earlier attempt would be rejected again, and a pause of hours looks like a hang.
            if error.retry_after_s > self.options.max_pause_s:
                raise ClientError(
                    f"{error} and requires a pause of {error.retry_after_s:g} s, longer than "
                    f"max_pause_s={self.options.max_pause_s:g}"
                )
            if error.status in BUSY:
                # All requests to a server wait for it together, and not each for itself.
                pace = (await self._wire()).pace_by_url[tried.url]
                times, given_up, wait_s = pace.rejections, pace.given_up, 0.0
            else:
                failed += 1
                times, given_up = failed, failed > self.options.max_retries
                wait_s = max(error.retry_after_s, self._backoff_s(failed))
            if given_up:
                text = f"{error}, {times} times in a row" if times > 1 else str(error)
                raise ClientError(text, status=error.status)
            self.usage.retries += 1
            # The pause holds no slot, so that requests to other servers continue.
            await asyncio.sleep(wait_s)

    async def _look(self) -> None:
        """Ask several servers how many requests they have, once in LOOK_S seconds."""
        servers = [s for s in self._router.servers if s.url not in self._without_figures]
        now = asyncio.get_running_loop().time()
        if len(self._router.servers) == 1 or now < self._next_look:
            return
        self._next_look = now + LOOK_S
        await asyncio.gather(*map(self._look_at, servers))

    async def _look_at(self, server: Server) -> None:
        import aiohttp

        session = (await self._wire()).session
        metrics_url = root_address(server.url) + "/metrics"
        try:
            async with (
                asyncio.timeout(LOOK_LIMIT_S),
                session.get(metrics_url, allow_redirects=False) as response,
            ):
                metrics = await response.text(errors="replace")
        except (TimeoutError, aiohttp.ClientError):
            server.note(None)
            return
        if response.status == 200:
            server.note(metrics)
        else:
            self._without_figures.add(server.url)

    def _backoff_s(self, failures: int) -> float:
        """Seconds before the next attempt. failures: attempts that have failed, from 1."""
        # Random pauses, so that requests that failed together do not all return together.
        backoff_s = self.options.backoff_s * 2.0 ** (failures - 1)
        return min(backoff_s * (1 - self.options.jitter() / 2), self.options.max_pause_s)

    async def _sent(self, server: Server, request: _Request, ticket: int) -> tuple[str, str]:
        """One attempt. Raises TryAgainError if another may succeed, else ClientError."""
        import aiohttp

        method, path, body, token, _ = request
        url = server.url + path
        headers = bearer(token) or None
        session, slots, pace_by_url, _ = await self._wire()
        pace = pace_by_url[server.url]
        try:
            async with (
                # First, so that the time limit does not include the wait for a slot.
                _slot(slots, server, pace, ticket) as attempt,
                asyncio.timeout(self.options.request_timeout_s) as limit,
                droppable(server, limit),
                # A redirect could send the key to another host.
                session.request(
                    method, url, json=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                # Error pages of proxies may have any encoding.
                text = whole_text((await response.read()).decode(errors="replace"))
                status = status_within(response.status, text)
                # Before the place is given to another request.
                pause_s = min(used_up_s(response.headers), self.options.max_pause_s)
                if status in BUSY:
                    pace.rejected(attempt, retry_after_s(response.headers) or pause_s)
                elif status < 500:
                    pace.served(pause_s)
        # Not sent again: the server may still be sampling, and a retry would add to its load.
        except TimeoutError as error:
            if server.is_dropped:
                raise TryAgainError(f"{url}: its server is in use no more") from error
            # aiohttp's connection timeout has a text, that of `asyncio.timeout` has none.
            late = f": {error} (connect_timeout_s={self.options.connect_timeout_s:g})"
            if not str(error):
                wait_s = self.options.request_timeout_s
                late = f" sent no response within request_timeout_s={wait_s:g}"
            raise ClientError(url + late) from error
        # A subclass of ClientConnectionError, but no retry makes a certificate valid.
        except aiohttp.ClientSSLError as error:
            raise ClientError(f"{url}: {type(error).__name__}: {error}") from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise TryAgainError(f"{url}: {type(error).__name__}: {error}") from error
        except aiohttp.ClientError as error:
            raise ClientError(f"{url}: {type(error).__name__}: {error}") from error
        check_status(url, status, text, response.headers)
        return url, text

    async def _wire(self) -> _Wire:
        """Connections and slots of the running event loop, made at its first request."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if loop not in self._wires:
            # Tests and notebooks start many loops, and each of them would be kept.
            for ended in [other for other in self._wires if other.is_closed()]:
                del self._wires[ended]
            # Read here and not in `__init__`: a client may be made before the key is set.
            session = aiohttp.ClientSession(
                # No limit of connections here: the slots limit requests over all servers.
                connector=aiohttp.TCPConnector(limit=0, force_close=not self.options.keep_alive),
                timeout=aiohttp.ClientTimeout(sock_connect=self.options.connect_timeout_s),
                headers=self._headers(os.environ.get(self.api_key_env) or None),
            )
            keeper = _closed_with_its_loop(session)
            # Up to its `yield`, without a wait: no other request can make a second session.
            await anext(keeper)
            slots = asyncio.Semaphore(most := self.options.concurrency)
            new_pace = partial(Pace, most, self.options.max_retries, self._backoff_s)
            self._wires[loop] = _Wire(session, slots, defaultdict(new_pace), keeper)
        return self._wires[loop]


def root_address(url: str) -> str:
    """The address without a final "/v1", because vLLM has routes outside it.

    >>> root_address("http://localhost:8000/v1/")
    'http://localhost:8000'
    """
    return url.rstrip("/").removesuffix("/v1")


def root_addresses(urls: str | Sequence[str]) -> list[str]:
    """The `root_address` of each; of one, where a single address is given."""
    return list(map(root_address, [urls] if isinstance(urls, str) else urls))


def bearer(key: str | None) -> dict[str, str]:
    """The header with the key, as most servers want it; none without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


async def _closed_with_its_loop(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    # `asyncio.run` ends the asynchronous generators of its loop, and with this one the session.
    try:
        yield
    finally:
        await session.close()


@asynccontextmanager
async def _slot(
    slots: asyncio.Semaphore, server: Server, pace: Pace, ticket: int
) -> AsyncIterator[int]:
    # Counted before the wait for a slot: routing must see waiting requests too.
    server.in_flight += 1
    try:
        # The place first: a request that waits for a busy server takes no slot from the others.
        async with pace.place(ticket) as attempt, slots:
            yield attempt
    finally:
        server.in_flight -= 1


def _close_left_open(wires: Mapping[asyncio.AbstractEventLoop, _Wire]) -> None:
    """Close the sessions of a collected transport whose loops run in other threads.

    Plain calls of policies have such a loop, and no place for an `async with`.
    """
    here = None
    with suppress(RuntimeError):
        here = asyncio.get_running_loop()
    for loop, (session, *_) in wires.items():
        if not session.closed and loop.is_running() and here is not loop:
            asyncio.run_coroutine_threadsafe(session.close(), loop).result(timeout=1.0)
