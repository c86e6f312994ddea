"""Counts of tokens, as servers report them with their responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Usage:
    """Counts of a client so far.

    requests: those with a response. failures: those without one, for any reason. Each request is
        one of both, however often it was sent.
    retries: attempts after the first one of a request.
    prompt_tokens, completion_tokens: as the servers count them; 0 for a server that does not.
    cached_tokens: those of the prompts that the servers had in their cache.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


def count_usage(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Numbers of prompt and completion tokens, as the server counts them; 0 without a count.

    >>> count_usage({"prompt_tokens": 12, "completion_tokens": None})
    (12, 0)
    """
    return usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0


def with_cached_tokens(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage with `cached_tokens` beside the other counts, if the server counts them.

    That is: those tokens of the prompt that the server had in its cache.

    >>> with_cached_tokens({"prompt_tokens_details": {"cached_tokens": 8}})["cached_tokens"]
    8
    """
    details = usage.get("prompt_tokens_details")
    # Null for vLLM without the option that counts them, and another form at some gateways.
    count = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return {**usage, "cached_tokens": count} if isinstance(count, int) else usage
