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

from ludic_gym.errors import ClientError, PromptTooLong

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
# Of vLLM, SGLang and OpenAI, of the latter's codes, of Anthropic, and of llama.cpp.
_TOO_LONG = re.compile(
    r"maximum (context|model|prompt) length|longer than the model's context|context_length_exceeded"
    r"|context.?window.?exceeded|(prompt|input|request) is too (long|large)|request too large"
    r"|exceeds? the (available )?context|exceed context limit|too many tokens"
    r"|token count.{0,40} exceeds the maximum|`inputs` tokens .{0,40} must be",
    re.IGNORECASE,
)
# Vendors say so with either of these.
_PROMPT_STATUSES = (400, 413, 422)
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

    PromptTooLong, a ClientError, is raised where the server says so of the prompt.
    text, headers: of the response.
    """
    if status == 200:
        return
    message = f"{url} returned {status}: {excerpt(_reason(text))}"
    # Overload and errors of the server may pass. Other statuses are about the request itself.
    # OpenAI's and Anthropic's servers say it where it is otherwise, as of a quota that is spent.
    wanted = headers.get("x-should-retry")
    may_pass = (status in _MAY_PASS or status >= 500) and wanted != "false"
    if may_pass or wanted == "true":
        raise TryAgainError(message, retry_after_s(headers), status=status)
    if status in _PROMPT_STATUSES and _TOO_LONG.search(text):
        raise PromptTooLong(message, status=status)
    raise ClientError(message, status=status)


def status_within(status: int, text: str) -> int:
    """The status of the failure that a response of status 200 reports in its text, else `status`.

    OpenRouter does so where a model fails after its start: {"error": {"code": 502, ...}} for the
    whole response or in its choice.

    >>> status_within(200, '{"error": {"code": 502, "message": "no server"}}')
    502
    """
    # Completions, which are long, rarely have this word and are not read twice.
    if status != 200 or '"error"' not in text:
        return status
    try:
        response = json.loads(text)
        code = (response.get("error") or response["choices"][0]["error"])["code"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return status
    return code if type(code) is int and 400 <= code < 600 else status


def _reason(text: str) -> str:
    """The message of an error, as servers write it; any other text as it is.

    {"error": {"message": ...}} as OpenAI, Anthropic, vLLM and Ollama, in a list as Gemini, or
    {"message": ...} as Mistral and older vLLM.
    """
    try:
        value = json.loads(text)
        value = value[0] if isinstance(value, list) else value
        return str(value.get("error", value)["message"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return text


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
