"""OpenAI's /v1/completions: text, or token ids, without roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated

from msgspec import Meta

from ludic_gym.errors import ConfigError
from ludic_train.agents.dialects.fields import (
    SAMPLING,
    SamplingBody,
    body_of,
    usage_of,
)
from ludic_train.agents.types import Answer, Event, Json, Piece, Request

REFUSED = (*SAMPLING, "best_of", "echo", "suffix")
# OpenAI's default.
MAX_TOKENS = 16
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]


class _Body(SamplingBody, kw_only=True):
    prompt: str | list[TokenId]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


def read(data: bytes) -> Request:
    """The request of a body. Raises ConfigError for one that cannot be followed."""
    body = body_of(data, _Body, REFUSED)
    if not body.prompt:
        raise ConfigError(f"prompt={body.prompt!r} has no tokens")
    return Request(
        **body.shared(),
        prompt=body.prompt if isinstance(body.prompt, str) else tuple(body.prompt),
        max_tokens=body.max_tokens or MAX_TOKENS,
        logprobs=body.logprobs is not None,
    )


def whole(answer: Answer, logprobs: Sequence[Json | None]) -> Json:
    """The response. logprobs: of each choice, in the format of chat completions."""
    choices = [
        {
            "index": i,
            "text": reply.completion.text,
            "logprobs": _listed(found),
            "finish_reason": reply.completion.finish_reason,
            **_ids(answer, i),
        }
        for i, (reply, found) in enumerate(zip(answer.replies, logprobs, strict=True))
    ]
    head = _head(answer.id, answer.created, answer.request)
    return {
        **head,
        "choices": choices,
        "usage": usage_of(answer.prompt_tokens, answer.sampled_tokens),
    }


class Events:
    """Events of a stream. id, created: of the response."""

    def __init__(self, id: str, created: int, request: Request) -> None:
        self._head = _head(id, created, request)

    def begin(self, prompt_tokens: int) -> Iterator[Event]:
        """No events come before the text."""
        yield from ()

    def piece(self, piece: Piece, index: int = 0) -> Iterator[Event]:
        """Events of a piece of a choice."""
        yield self._chunk(piece.text, index, None, None)

    def end(self, answer: Answer, logprobs: Sequence[Json | None]) -> Iterator[Event]:
        """As the last events of chat completions, with log-probs in parallel lists."""
        for index, (reply, found) in enumerate(zip(answer.replies, logprobs, strict=True)):
            yield self._chunk("", index, reply.completion.finish_reason, _listed(found))
        if answer.request.usage:
            usage = usage_of(answer.prompt_tokens, answer.sampled_tokens)
            yield "", {**self._head, "choices": [], "usage": usage}
        yield "", "[DONE]"

    def _chunk(self, text: str, index: int, reason: str | None, logprobs: Json | None) -> Event:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return "", {**self._head, "choices": [choice]}


def _head(id: str, created: int, request: Request) -> Json:
    return {"id": id, "object": "text_completion", "created": created, "model": request.model}


def _ids(answer: Answer, index: int) -> Json:
    """The fields by which vLLM returns token ids, which it has in each choice on this route."""
    if not answer.request.token_ids:
        return {}
    completion = answer.replies[index].completion
    return {
        "token_ids": list(completion.completion_ids or ()),
        "prompt_token_ids": list(completion.prompt_ids or ()),
    }


def _listed(found: Json | None) -> Json | None:
    """Log-probs as four parallel lists."""
    if found is None:
        return None
    tokens = [entry["token"] for entry in found["content"]]
    values = [entry["logprob"] for entry in found["content"]]
    offsets = list(accumulate(map(len, tokens[:-1]), initial=0)) if tokens else []
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": None,
        "text_offset": offsets,
    }
