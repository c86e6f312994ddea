"""Failures by the words of vendors: long prompts, filters, calls that a server cannot read."""

from __future__ import annotations

import json
import re
from typing import Any

from ludic_gym.dialogs import Change, change_for
from ludic_gym.errors import ClientError, PromptTooLong
from ludic_gym.types import FinishReason

# Ends that the server made: such a text is no sample of the model, and may pass.
ABORTED = ("abort", "error", "cancelled", "network_error", "insufficient_system_resource")
_TOO_LONG = re.compile(
    r"maximum (allowed )?(context|model|prompt|input|sequence) length|maximum context size"
    r"|longer than the (model's context|maximum)|context[_ .](length|window|size)[_ .]?exceeded"
    r"|context.?window.?exceeded|(prompt|input|request)( body)? (is )?too (long|large)"
    r"|exceeds? (the )?(available |maximum )?(context|max_)|exceed_context_size|context_exceeded"
    r"|context window exceeds|exceeded model token limit|prompt exceeds max|prompt \u8d85\u957f"
    r"|input length.{0,40} exceeds|input length should be|too many tokens|reduce the length"
    r"|token count.{0,60} (exceeds the|supports up to)|`inputs` tokens .{0,40} must be"
    r"|request exceeds the maximum size|string too long",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content_filter|content.?policy.?violation|content management policy|moderation_blocked"
    r"|ResponsibleAIPolicyViolation|data_?inspection_?failed|content exists risk|high risk"
    r"|content filtering policy|violating our usage policy|for safety reasons|violates usage"
    r"|prohibited_content|blocked by .{0,30}safety|requires moderation",
    re.IGNORECASE,
)
# Of Groq, Ollama and llama.cpp: each reads calls itself, and reports the model's text as its error.
_UNREADABLE = re.compile(
    r"tool_use_failed|error parsing tool call|failed to parse (tool call|input at pos)",
    re.IGNORECASE,
)
_SUSPECT = re.compile(
    rf'"error"|"choices"\s*:\s*(null|\[\s*\])|"finish_reason"\s*:\s*"({"|".join(ABORTED)})"'
)
# Of the key, the account and the address.
_NOT_OF_PROMPTS = (401, 402, 403, 404)
_STATUSES = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}


class RejectedReply(ClientError):
    """A status for what the model wrote or was asked: an outcome of the model, and no failure.

    finish_reason: of the reply. unreadable: the text of a call that the server could not read; None
    for a reply without one.
    """

    blame = "model"

    def __init__(
        self, message: str, status: int, reason: FinishReason, unreadable: str | None
    ) -> None:
        super().__init__(message, status=status)
        self.finish_reason: FinishReason = reason
        self.unreadable = unreadable


class RefusedDialog(ClientError):
    """A server or its chat template takes no dialog of this form.

    change: to the form that it takes.
    """

    def __init__(self, message: str, status: int, change: Change) -> None:
        super().__init__(message, status=status)
        self.change = change


def fault_of(message: str, status: int, text: str) -> ClientError | None:
    """The error that the prompt or the model has caused; None for one of server or request.

    message: of the error. text: of a response with another status than 200.
    """
    # As it stands there and as it reads: JSON may have codes in place of characters.
    words = f"{text}\n{reason_of(text)}"
    change = change_for(words)
    refused = RefusedDialog(message, status, change) if change else None
    # Errors of a schema, each with its place, repeat what was sent, whatever its words.
    if '"loc"' in text:
        return refused
    is_busy = status in (429, 529)
    # A limit of tokens in a minute, which may pass unless one request exceeds it.
    is_rate = is_busy and "request too large" not in words.lower()
    if _TOO_LONG.search(words) and not is_rate and status not in _NOT_OF_PROMPTS:
        return PromptTooLong(message, status=status)
    if status in (400, 403, 422, 451) and _FILTERED.search(words):
        return RejectedReply(message, status, "content_filter", None)
    if not is_busy and _UNREADABLE.search(words):
        error = error_in(text)
        raw = error.get("failed_generation") if isinstance(error, dict) else None
        return RejectedReply(message, status, "tool_calls", str(raw or reason_of(text)))
    return refused


def status_within(status: int, text: str) -> int:
    """The status of the failure that a response of status 200 reports in its text, else `status`.

    {"error": ...} for the whole response or in its choice, no choice at all, or a reply that the
    server has ended. 502 for one that names no status.

    >>> status_within(200, '{"error": {"code": 503, "message": "no server"}}')
    503
    >>> status_within(200, '{"choices": []}')
    502
    """
    # Completions are long, and rarely read twice.
    if status != 200 or not _SUSPECT.search(text):
        return status
    if error := error_in(text):
        return _status_of(error)
    try:
        response = json.loads(text)
    except (ValueError, RecursionError):
        return status
    if not isinstance(response, dict) or "choices" not in response:
        return status
    choice = _first(response["choices"])
    return 502 if choice is None or choice.get("finish_reason") in ABORTED else status


def error_in(text: str) -> Any:  # noqa: ANN401 - JSON
    """The error of a response's JSON or of its choice, an object or a text; None without one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # Gemini sends a list.
    response = _first(value) if isinstance(value, list) else value
    if not isinstance(response, dict):
        return None
    return response.get("error") or (_first(response.get("choices")) or {}).get("error")


def reason_of(text: str) -> str:
    """The message of an error, as servers write it; any other text as it is.

    {"error": {"message": ...}} as OpenAI, Anthropic and vLLM, in a list as Gemini, {"error": text}
    as Ollama, or {"message": ...} as Mistral and older vLLM.
    """
    error = error_in(text)
    if isinstance(error, str):
        return error
    try:
        return str((error or json.loads(text))["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def _first(values: object) -> dict[str, Any] | None:
    """The first object of a list; None for a list without one, and for anything else."""
    first = values[0] if isinstance(values, list) and values else None
    return first if isinstance(first, dict) else None


def _status_of(error: Any) -> int:  # noqa: ANN401 - JSON
    fields = error if isinstance(error, dict) else {}
    for value in (str(fields.get(key)) for key in ("code", "status", "type")):
        number = int(value) if value.isdecimal() else _STATUSES.get(value, 0)
        if 400 <= number < 600:
            return number
    return 502
