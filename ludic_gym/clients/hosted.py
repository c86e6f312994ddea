"""JSON over HTTP to a hosted server, by the package of its vendor: `openai` or `anthropic`."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ludic_gym.clients.attempts import Attempts
from ludic_gym.clients.faults import status_within
from ludic_gym.clients.loops import PerLoop
from ludic_gym.clients.responses import TryAgainError, check_status, json_object
from ludic_gym.clients.streams import whole_text
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions

if TYPE_CHECKING:
    # It takes longer to import than all of ludic_gym, so it is imported at the first request.
    import httpx2


# Requests in flight in one pool of connections, which looks at all of them for each request.
IN_POOL = 32


class Package(NamedTuple):
    """The client of a vendor's package, headers of each request, and the errors that it raises."""

    client: Any
    headers: Mapping[str, Any]
    status_error: type[Exception]
    connection_error: type[Exception]


# By address, key ("" for none) and connections. The package's own retries are off.
OpenPackage = Callable[[str, str, "httpx2.AsyncClient"], Package]
# By the package's client and the arguments of every request.
Send = Callable[[Any, Mapping[str, Any]], Awaitable["httpx2.Response"]]


class _Wire:
    """Packages and slots of one event loop; each package has at most IN_POOL requests in flight.

    open_package: called where the packages so far have no place.
    """

    def __init__(self, open_package: Callable[[], Package], slots: int) -> None:
        self._open_package = open_package
        self._slots = asyncio.Semaphore(slots)
        self._packages: list[Package] = []
        self._in_flight = Counter[int]()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Package]:
        """The package of a request, when there is a slot."""
        async with self._slots:
            numbers = (n for n in count() if self._in_flight[n] < IN_POOL)
            number = next(numbers)
            if number == len(self._packages):
                self._packages.append(self._open_package())
            self._in_flight[number] += 1
            try:
                yield self._packages[number]
            finally:
                self._in_flight[number] -= 1

    async def close(self) -> None:
        """Close all connections."""
        for package in self._packages:
            await package.client.close()


class HostedTransport:
    """JSON over HTTP to one server, by the package of its vendor.

    Works from several event loops, each with its own connections. Proxies and certificates are
    those of the environment.
    url: address that the paths are appended to.
    open_package: called at the first request of each event loop.
    api_key_env: the environment variable that holds the key; unset means none is sent.
    usage: counts of requests.
    Raises ConfigError for an address that is not http(s).
    """

    def __init__(
        self,
        url: str,
        open_package: OpenPackage,
        api_key_env: str,
        options: HttpOptions | None = None,
    ) -> None:
        self.url = _checked_address(url)
        self.api_key_env = api_key_env
        self.options = options or HttpOptions()
        self._attempts = Attempts(self.options)
        self.usage = self._attempts.usage
        self._wires = PerLoop(
            partial(_open_wire, self.url, open_package, api_key_env, self.options), _Wire.close
        )

    async def post(
        self, path: str, body: Mapping[str, Any], *, prefix: Sequence[Hashable] = ()
    ) -> dict[str, Any]:
        """Send a JSON object; the JSON object in the response.

        prefix: without effect, because there is one server.
        Raises ClientError if all attempts fail, if the request takes too long, or if the response
        has another status than 200 or is no JSON object.
        """
        return await self._response(path, lambda client, how: client.post(path, body=body, **how))

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON object at the path. Raises ClientError as `post` does."""
        return await self._response(path, lambda client, how: client.get(path, **how))

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self._wires.close()

    async def _response(self, path: str, send: Send) -> dict[str, Any]:
        wire = await self._wires.get()
        # Held in pauses too: requests that were rejected come before newer ones.
        async with wire.place() as package:
            return await self._attempts.first_success(lambda: self._sent(path, package, send))

    async def _sent(self, path: str, package: Package, send: Send) -> dict[str, Any]:
        """The response. Raises TryAgainError if another attempt may succeed, else ClientError."""
        import httpx2

        url = self.url + path
        how = {"cast_to": httpx2.Response, "options": {"headers": package.headers}}
        try:
            # The package's own limits are for each wait, and not for the whole response.
            async with asyncio.timeout(self.options.request_timeout_s):
                response = await send(package.client, how)
        except package.status_error as error:
            response = error.response  # type: ignore[attr-defined]
        # Not sent again: the server may still be sampling, and a retry would add to its load.
        except TimeoutError as error:
            limit_s = self.options.request_timeout_s
            raise ClientError(
                f"{url} sent no response within request_timeout_s={limit_s:g}"
            ) from error
        except package.connection_error as error:
            raise self._connection_fault(url, error) from error
        # Error pages of proxies may have any encoding.
        text = whole_text(response.content.decode(errors="replace"))
        check_status(url, status_within(response.status_code, text), text, response.headers)
        return json_object(url, text)

    def _connection_fault(self, url: str, error: Exception) -> ClientError | TryAgainError:
        """The error of a request without a response."""
        import httpx2

        causes = list(_causes(error))
        text = f"{type(causes[0]).__name__}: {causes[0]}" if causes else str(error)
        # No retry makes a certificate valid, or mends a key that no header can hold.
        lasting = (ssl.SSLCertVerificationError, httpx2.LocalProtocolError)
        if any(isinstance(cause, lasting) for cause in causes):
            return ClientError(f"{url}: {text}")
        never = (httpx2.ConnectError, httpx2.ConnectTimeout)
        if self._attempts.last_response is None and any(isinstance(c, never) for c in causes):
            return ClientError(
                f"nothing can be reached at {self.url} ({text}): start the server, or correct the "
                "address"
            )
        return TryAgainError(f"{url}: {text}")


def _checked_address(url: str) -> str:
    """The address without final slashes. Raises ConfigError for one that is not http(s)."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        # Reading it checks it.
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"base_url is an http(s) address, got {url!r}: {error}") from error
    if not is_address:
        raise ConfigError(f"base_url is an http(s) address, got {url!r}")
    return url.rstrip("/")


def _open_wire(
    url: str, open_package: OpenPackage, api_key_env: str, options: HttpOptions
) -> _Wire:
    import httpx2

    # Read here, at the first request: a client may be made before the key is set.
    key = os.environ.get(api_key_env, "").strip()
    certificates = httpx2.create_ssl_context()

    def open_pool() -> Package:
        connections = httpx2.AsyncClient(
            verify=certificates,
            # No limit of connections here, which the slots set.
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=None if options.keep_alive else 0
            ),
            timeout=httpx2.Timeout(options.request_timeout_s, connect=options.connect_timeout_s),
            # A proxy of the environment reaches its own machine there.
            mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")),
            # A redirect could send the key to another host.
            follow_redirects=False,
        )
        return open_package(url, key, connections)

    return _Wire(open_pool, options.concurrency)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors that led to the error, the latest first."""
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield cause
        yield from _causes(cause)
