"""Limits of requests to the servers of a model: those of a client, and those of commands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from ludic_gym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Limits and retries of requests.

    concurrency: requests in flight at once, over all servers.
    connect_timeout_s, request_timeout_s: time limits for a connection, and for the whole response.
    max_retries: retries of a request after status 408, 409 or 5xx, a lost connection or a response
        that was cut. A server's `x-should-retry` comes first. Other failures are not retried.
    backoff_s: the first pause, doubled each time up to 8 s, minus up to half of it at random; a
        pause that a server names is respected.
    max_wait_s: a busy server (429, 503 or 529) is waited for until it has responded to no request
        for so long, and no longer pause is begun.
    keep_alive: reuse connections for later requests.
    jitter: a draw from [0, 1).
    Raises ConfigError for a concurrency below 1, negative retries or waits, or a time limit that is
    not positive.

        patient = HttpOptions(concurrency=32, request_timeout_s=1800, max_retries=8)
        client = OpenAIChatClient("http://localhost:8000/v1", options=patient)
    """

    concurrency: int = 256
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 600.0
    max_retries: int = 4
    backoff_s: float = 0.5
    max_wait_s: float = 600.0
    keep_alive: bool = True
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.max_retries < 0 or not self.max_wait_s >= 0:
            raise ConfigError(
                "concurrency is at least 1, max_retries and max_wait_s at least 0, got concurrency="
                f"{self.concurrency}, max_retries={self.max_retries}, max_wait_s={self.max_wait_s}"
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
        wait: Seconds for which a server that is busy or at its rate limit is waited for.
    """

    requests: int = 256
    request_timeout: float = 600.0
    retries: int = 4
    wait: float = 600.0

    def __post_init__(self) -> None:
        has_wait = self.wait >= 0
        if self.requests < 1 or self.retries < 0 or not self.request_timeout > 0 or not has_wait:
            raise ConfigError(
                f"requests={self.requests}, request_timeout={self.request_timeout}, retries="
                f"{self.retries}, wait={self.wait}: at least 1 request, a positive timeout, and 0 "
                "retries and seconds or more"
            )

    @property
    def options(self) -> HttpOptions:
        """The options of a client."""
        return HttpOptions(
            concurrency=self.requests,
            request_timeout_s=self.request_timeout,
            max_retries=self.retries,
            max_wait_s=self.wait,
        )

    def words(self) -> Iterator[str]:
        """The limits as words of a command line, those left out that have their defaults."""
        for field in fields(self):
            if (value := getattr(self, field.name)) != field.default:
                yield from (f"--{field.name.replace('_', '-')}", str(value))
