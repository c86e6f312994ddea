"""JSON over HTTP to one or several vLLM servers: routing, time limits, retries, accounting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ludic_gym.clients.attempts import Attempts
from ludic_gym.clients.faults import status_within
from ludic_gym.clients.loops import PerLoop
from ludic_gym.clients.responses import TryAgainError, check_status, json_object
from ludic_gym.clients.routing import Router, Server, droppable
from ludic_gym.clients.streams import whole_text
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions

if TYPE_CHECKING:
    # aiohttp takes longer to import than all of ludic_gym, so it is imported at the first request.
    import aiohttp

# Seconds between two looks at the servers' figures, and the longest that one may take.
LOOK_S, LOOK_LIMIT_S = 1.0, 0.5
T = TypeVar("T")


class _Request(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None
    token: str | None = None
    prefix: Sequence[Hashable] = ()


class _Wire(NamedTuple):
    """Connections and slots of one event loop."""

    session: aiohttp.ClientSession
    slots: asyncio.Semaphore


class HttpTransport:
    """JSON over HTTP, each request to the server that `Router` chooses.

    Works from several event loops, each with its own connections.
    urls: addresses that the paths are appended to.
    api_key_env: the environment variable that holds the key; unset means none is sent.
    usage: counts over all servers.
    Raises ConfigError without an address, or for one that is not http(s).
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key_env: str,
        options: HttpOptions | None = None,
    ) -> None:
        self.api_key_env = api_key_env
        self.options = options or HttpOptions()
        self._attempts = Attempts(self.options)
        self.usage = self._attempts.usage
        self._router = Router()
        self._next_look = 0.0
        # Servers that have no figures, such as a gateway.
        self._without_figures: set[str] = set()
        self._wires = PerLoop(
            partial(_open_wire, api_key_env, self.options), lambda wire: wire.session.close()
        )
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
        await self._wires.close()

    async def _counted(self, request: _Request, read: Callable[[str, str], T]) -> T:
        """The response as `read` returns it for address and text; counted in `usage`."""
        tried: Server | None = None

        async def attempt() -> T:
            nonlocal tried
            await self._look()
            tried = self._router.choose(request.prefix, tried=tried)
            return read(*await self._sent(tried, request))

        return await self._attempts.first_success(attempt)

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

        session = (await self._wires.get()).session
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

    async def _sent(self, server: Server, request: _Request) -> tuple[str, str]:
        """Address and text of the response.

        Raises TryAgainError if another attempt may succeed, else ClientError.
        """
        import aiohttp

        method, path, body, token, _ = request
        url = server.url + path
        headers = bearer(token) or None
        session, slots = await self._wires.get()
        try:
            async with (
                # First, so that the time limit does not include the wait for a slot. Pauses hold
                # none, so that requests to other servers continue.
                _slot(slots, server),
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


def _open_wire(api_key_env: str, options: HttpOptions) -> _Wire:
    import aiohttp

    session = aiohttp.ClientSession(
        # No limit of connections here: the slots limit requests over all servers.
        connector=aiohttp.TCPConnector(limit=0, force_close=not options.keep_alive),
        timeout=aiohttp.ClientTimeout(sock_connect=options.connect_timeout_s),
        # Read here, at the first request: a client may be made before the key is set.
        headers=bearer(os.environ.get(api_key_env)),
    )
    return _Wire(session, asyncio.Semaphore(options.concurrency))


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore, server: Server) -> AsyncIterator[None]:
    # Counted before the wait for a slot: routing must see waiting requests too.
    server.in_flight += 1
    try:
        async with slots:
            yield
    finally:
        server.in_flight -= 1
