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
from ludic_gym.errors import ClientError, QuotaExhausted

NO_QUOTA_REMEDY = (
    "the quota of this key is used up; add credit or raise the limit at the vendor, or set another "
    "key, and run the same again"
)
UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
# Of Gemini, in an object of the error and in its words, and of OpenAI.
_NAMED_PAUSE = re.compile(
    r"(?:\"retryDelay\":\s*\"|(?:try again|retry) in )((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)"
)
# Codes and words of vendors for an account that gets no more by waiting. Gemini's words are the
# same for its limits by the minute.
_NO_QUOTA = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_not_active|PerDayPer"
    r"|credit balance is too low|insufficient (balance|credits?|funds)",
    re.IGNORECASE,
)
_PAYMENT_REQUIRED = 402
_EXCERPT_CHARACTERS = 300
# Of a request, below 500, after which it is sent again: a time limit of the server, a lock of it,
# and a limit of requests.
_MAY_PASS = (408, 409, 429)
# Statuses of servers with too many requests: a rate limit, an overload, and Anthropic's overload.
BUSY = (429, 503, 529)


def retry_after_s(headers: Mapping[str, str], text: str = "") -> float:
    """Pause that a rejection names, by its headers or else in its text; 0.0 without one.

    >>> retry_after_s({"retry-after-ms": "250", "retry-after": "1"})
    0.25
    >>> retry_after_s({}, "Rate limit reached for requests. Please try again in 1m2.5s.")
    62.5
    """
    with suppress(KeyError, ValueError):
        return _finite(headers["retry-after-ms"]) / 1000
    named = _NAMED_PAUSE.search(text)
    return _seconds(headers.get("retry-after", "")) or (_seconds(named[1]) if named else 0.0)


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

    PromptTooLong, RejectedReply and QuotaExhausted, which are ClientErrors, are raised where the
    server says so of the prompt, of what the model wrote, or of the account.
    text, headers: of the response.
    """
    if status == 200:
        return
    message = f"{url} returned {status}: {excerpt(reason_of(text))}"
    if (fault := fault_of(message, status, text)) is not None:
        raise fault
    if status == _PAYMENT_REQUIRED or (400 <= status < 500 and _NO_QUOTA.search(text)):
        raise QuotaExhausted(f"{message}: {NO_QUOTA_REMEDY}", status=status)
    # Overload and errors of the server may pass. Other statuses are about the request itself.
    # OpenAI's and Anthropic's servers say it where it is otherwise, as of a quota that is spent.
    wanted = headers.get("x-should-retry")
    may_pass = (status in _MAY_PASS or status >= 500) and wanted != "false"
    if may_pass or wanted == "true":
        raise TryAgainError(message, retry_after_s(headers, text), status=status)
    raise ClientError(message, status=status)


def json_object(url: str, text: str) -> dict[str, Any]:
    """The JSON object of a response.

    Raises TryAgainError for a text that was cut or is a page of a proxy, and ClientError for any
    other value.
    """
    try:
        response = json.loads(text)
    except ValueError as error:
        raise TryAgainError(f"{url} returned no JSON ({error}): {excerpt(text)}") from error
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
