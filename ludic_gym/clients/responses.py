"""Responses over HTTP: statuses and texts as results or errors, pauses by their headers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ludic_gym.clients.faults import fault_of, reason_of
from ludic_gym.errors import ClientError

# Names of the remaining number and of its reset, by the kind of limit.
LIMITS = (
    *(
        (f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}")
        for kind in ("requests", "tokens")
    ),
    *(
        (f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset")
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
)
UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_EXCERPT_CHARACTERS = 300
# Of a request, below 500, after which it is sent again: a time limit of the server, a lock of it,
# and a limit of requests.
_MAY_PASS = (408, 409, 429)
# Statuses of servers with too many requests: a rate limit, and Anthropic's overload.
BUSY = (429, 529)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Pause that a rejection names, by `retry-after-ms` or `Retry-After`; 0.0 without one.

    >>> retry_after_s({"retry-after-ms": "250", "retry-after": "1"}), retry_after_s({})
    (0.25, 0.0)
    """
    with suppress(KeyError, ValueError):
        return _finite(headers["retry-after-ms"]) / 1000
    return _seconds(headers.get("retry-after", ""))


def used_up_s(headers: Mapping[str, str]) -> float:
    """Seconds until the limits are full again of which nothing remains; 0.0 if there is none.

    Until they are full, and not until the next request: on average it costs no time, because what
    has filled up meanwhile is sent at once.

    >>> used_up_s({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2.5s"})
    62.5
    >>> used_up_s({"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "12ms"})
    0.0
    """
    spent = (reset for remaining, reset in LIMITS if headers.get(remaining, "").strip() == "0")
    return max((_seconds(headers.get(reset, "")) for reset in spent), default=0.0)


def _seconds(text: str) -> float:
    """Seconds of a number, of "6m0s", of a date or of an ISO time; 0.0 for anything else."""
    with suppress(ValueError):
        return _finite(text)
    if _PART.sub("", text) == "":
        return sum((float(number) * UNITS_S[unit] for number, unit in _PART.findall(text)), 0.0)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError):
            date = read(text)
            return max(0.0, (date - datetime.now(UTC)).total_seconds()) if date.tzinfo else 0.0
    return 0.0


def _finite(text: str) -> float:
    """The number, at least 0.0. Raises ValueError for nan, and for a text that is none."""
    number = float(text)
    if math.isnan(number):
        raise ValueError(text)
    return max(0.0, number)


class TryAgainError(Exception):
    """A temporary failure: the request is sent again."""

    def __init__(self, text: str, retry_after_s: float = 0.0, *, status: int | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.status = status


def check_status(url: str, status: int, text: str, headers: Mapping[str, str]) -> None:
    """Raise ClientError for another status than 200, TryAgainError for one that may pass.

    PromptTooLong and RejectedReply, which are ClientErrors, are raised where the server says so of
    the prompt, or of what the model wrote. text, headers: of the response.
    """
    if status == 200:
        return
    message = f"{url} returned {status}: {excerpt(reason_of(text))}"
    if (fault := fault_of(message, status, text)) is not None:
        raise fault
    # Overload and errors of the server may pass. Other statuses are about the request itself.
    # OpenAI's and Anthropic's servers say it where it is otherwise, as of a quota that is spent.
    wanted = headers.get("x-should-retry")
    may_pass = (status in _MAY_PASS or status >= 500) and wanted != "false"
    if may_pass or wanted == "true":
        raise TryAgainError(message, retry_after_s(headers), status=status)
    raise ClientError(message, status=status)


def json_object(url: str, text: str) -> dict[str, Any]:
    """The JSON object of a response. Raises ClientError for any other text."""
    try:
        response = json.loads(text)
    except ValueError as error:
        raise ClientError(f"{url} returned no JSON ({error}): {excerpt(text)}") from error
    if not isinstance(response, dict):
        raise ClientError(f"{url} returned no JSON object: {excerpt(text)}")
    return response


def excerpt(text: str) -> str:
    """The text, or its first 300 characters and its length if it is longer.

    >>> excerpt("x" * 301)[-21:], excerpt("")
    ('x... (301 characters)', '(nothing)')
    """
    # Error pages may be long, and errors of episodes are kept in records.
    if len(text) <= _EXCERPT_CHARACTERS:
        return text or "(nothing)"
    return f"{text[:_EXCERPT_CHARACTERS]}... ({len(text)} characters)"
