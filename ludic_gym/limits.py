"""Limits of requests to the servers of a model, as every command and function takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ludic_gym.errors import ConfigError

if TYPE_CHECKING:
    from ludic_gym.clients.transport import HttpOptions


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
        # Imported here: commands take these limits, and most send no requests.
        from ludic_gym.clients.transport import HttpOptions

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
