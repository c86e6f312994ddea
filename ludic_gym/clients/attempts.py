"""Attempts: a request is sent again after failures that may pass, and a busy server waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ludic_gym.clients.responses import BUSY, TryAgainError
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions

# The longest pause that no server has named.
LONGEST_S = 8.0
T = TypeVar("T")


@dataclass(slots=True)
class Usage:
    """Counts of a client so far.

    requests: those with a response. failures: those without one, for any reason. Each request is
        one of both, however often it was sent.
    retries: attempts after the first one of a request. waiting: requests that wait now, for a
        server that is busy.
    prompt_tokens, completion_tokens: as the servers count them; 0 for a server that does not.
    cached_tokens: those of the prompts that the servers had in their cache.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Attempts:
    """The attempts of a client's requests, and their number in `usage`.

    last_response: when any request had a response, by the monotonic clock; None before the first.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        self.usage = Usage()
        self.last_response: float | None = None

    async def first_success(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that raises no TryAgainError.

        Raises ClientError after `max_retries`, or where a busy server has responded to no request
        for `max_wait_s` seconds.
        """
        try:
            result = await self._repeated(attempt)
        # Cancellation too: every request is counted once.
        except BaseException:
            self.usage.failures += 1
            raise
        self.usage.requests += 1
        self.last_response = time.monotonic()
        return result

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        start = time.monotonic()
        failures = rejections = 0
        while True:
            try:
                return await attempt()
            except TryAgainError as failure:
                error = failure
            is_busy = error.status in BUSY
            if is_busy:
                rejections += 1
                pause_s = error.retry_after_s or self._backoff_s(rejections)
            else:
                failures += 1
                pause_s = max(error.retry_after_s, self._backoff_s(failures))
                if failures > self.options.max_retries:
                    text = f"{error}, {failures} times in a row" if failures > 1 else str(error)
                    raise ClientError(text, status=error.status)
            self._check_wait(error, pause_s, start)
            self.usage.retries += 1
            self.usage.waiting += is_busy
            try:
                await asyncio.sleep(pause_s)
            finally:
                self.usage.waiting -= is_busy

    def _backoff_s(self, failures: int) -> float:
        """Seconds before the next attempt. failures: attempts that have failed, from 1."""
        # Random pauses, so that requests that failed together do not all return together.
        backoff_s = min(self.options.backoff_s * 2.0 ** min(failures - 1, 30), LONGEST_S)
        return backoff_s * (1 - self.options.jitter() / 2)

    def _check_wait(self, error: TryAgainError, pause_s: float, start: float) -> None:
        """Raise ClientError if the pause is too long. start: that of the request."""
        limit_s = self.options.max_wait_s
        # A server that responds to others in between is only busy.
        idle_s = time.monotonic() - max(start, self.last_response or start)
        if pause_s > limit_s:
            reason = f"requires a pause of {pause_s:g} s, longer than max_wait_s={limit_s:g}"
            raise ClientError(f"{error} and {reason}", status=error.status)
        if idle_s + pause_s > limit_s:
            reason = f"has responded to no request for max_wait_s={limit_s:g} s"
            raise ClientError(f"{error}, and {reason}", status=error.status)
