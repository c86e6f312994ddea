"""Limits of requests to the servers of a model: those of a client, and those of commands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from ludic_gym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Limits and retries of requests.

    concurrency: requests in flight at once, over all servers; fewer at a server that rejects some
        with status 429 or 529, as `Pace` describes.
    connect_timeout_s, request_timeout_s: time limits for a connection, and for the whole response.
    max_retries: retries of a request after status 408, 409 or 5xx, or a lost connection; after 429
        or 529, as long as the server responds to others in between. A server's `x-should-retry`
        comes first. Other failures are not retried.
    backoff_s: the first pause, doubled each time, minus up to half of it at random; pauses that a
        server names in its headers are respected. None is longer than `max_pause_s`.
    keep_alive: reuse connections for later requests.
    jitter: a draw from [0, 1).
    Raises ConfigError for a concurrency below 1, negative retries, or a limit that is not positive.

        patient = HttpOptions(concurrency=32, request_timeout_s=1800, max_retries=8)
        client = OpenAIChatClient("http://localhost:8000/v1", options=patient)
    """

    concurrency: int = 256
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 600.0
    max_retries: int = 4
    backoff_s: float = 0.5
    max_pause_s: float = 600.0
    keep_alive: bool = True
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.max_retries < 0:
            raise ConfigError(
                "concurrency is at least 1 and max_retries at least 0, got "
                f"concurrency={self.concurrency}, max_retries={self.max_retries}"
            )
        if min(self.connect_timeout_s, self.request_timeout_s) <= 0:
            raise ConfigError(
                f"time limits are positive, got connect_timeout_s={self.connect_timeout_s}, "
                f"request_timeout_s={self.request_timeout_s}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of the requests that this program sends to the servers of a model.

        lt.train("ludic/GSM8K-v0", limits=lg.RequestLimits(requests=64, request_timeout=1800), ...)

    Raises ConfigError for values that no request could be sent with.

    Attributes:
        requests: Requests in flight at once, over all servers.
        request_timeout: Seconds for a response. A request without one fails, and is not sent again.
        retries: Retries of a request after a lost connection or status 5xx, with growing pauses.
    """

    requests: int = 256
    request_timeout: float = 600.0
    retries: int = 4

    def __post_init__(self) -> None:
        if self.requests < 1 or self.retries < 0 or not self.request_timeout > 0:
            raise ConfigError(
                f"requests={self.requests}, request_timeout={self.request_timeout}, retries="
                f"{self.retries}: at least 1 request, a positive timeout, and 0 retries or more"
            )

    @property
    def options(self) -> HttpOptions:
        """The options of a client."""
        return HttpOptions(
            concurrency=self.requests,
            request_timeout_s=self.request_timeout,
            max_retries=self.retries,
        )

    def words(self) -> Iterator[str]:
        """The limits as words of a command line, those left out that have their defaults."""
        for field in fields(self):
            if (value := getattr(self, field.name)) != field.default:
                yield from (f"--{field.name.replace('_', '-')}", str(value))
