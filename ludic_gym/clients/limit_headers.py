"""Seconds until a server takes more requests, by the headers of its responses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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
