"""Responses and errors as JSON, in the formats of vLLM and OpenAI.

`generated`, `chatted` and `completed` give the part of a choice that depends on the route;
`response` puts the choices together with the fields that all routes share.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

import msgspec
import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler

from ludic_gym.errors import ConfigError, LudicError, PromptTooLong
from ludic_gym.sampling import unpacked_masks
from ludic_train.cluster.servers.local.schemas import Chat, Complete
from ludic_train.cluster.servers.local.served_model import Sampled, Served
from ludic_train.engine.sampling import Scores
from ludic_train.errors import ModelNotFound

SERVED = web.AppKey("served", Served)
Json = dict[str, Any]
# JSON has no infinity; vLLM writes this for tokens that could not have been sampled.
LOWEST = -9999.0
NAMES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    500: "InternalServerError",
}


def reply(content: object, status: int = 200) -> web.Response:
    """The content as JSON; msgspec encodes any structs in it."""
    body = msgspec.json.encode(content)
    return web.Response(body=body, status=status, content_type="application/json")


def refused(status: int, message: str) -> web.Response:
    """An error in vLLM's format.

    status: HTTP status, which the JSON repeats as "code". message: one line for the user.
    """
    kind = NAMES.get(status, "Error")
    return reply(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, status
    )


@web.middleware
async def with_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of the request as 400 or 404, failures of the server as 500.

    Any other exception is a bug: aiohttp logs it and sends a 500 of its own.
    """
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refused(error.status, f"{request.method} {request.path}: {error.reason}")
    except ModelNotFound as error:
        return refused(404, str(error))
    except (ConfigError, PromptTooLong) as error:
        return refused(400, str(error))
    except LudicError as error:
        return refused(500, str(error))


def generated(each: Sampled, *, with_logprobs: bool) -> Json:
    """Part of a choice of /inference/v1/generate.

    with_logprobs: True adds the log-prob of each token and, where `each` has scores, the likeliest
    tokens at its position.
    """
    ids, logprobs = _tokens(each)
    content: list[Json] = [
        {"token_id": i, "logprob": p} for i, p in zip(ids, logprobs, strict=True)
    ]
    # Not strict: `scores` is empty unless the request needs the likeliest tokens.
    for entry, scores in zip(content, each.scores, strict=False):
        ranked = _ranked(scores, entry["logprob"])
        entry["top_logprobs"] = [{"token_id": i, "logprob": p} for i, p in ranked]
    return {
        "text": each.completion.text,
        "token_ids": ids,
        "logprobs": {"content": content} if with_logprobs else None,
        "sampling_mask": _masks(each),
        "routed_experts": each.completion.routed_experts,
        "weight_versions": [
            {"version": name, "start": start, "end": end} for name, start, end in each.versions
        ],
    }


def chatted(each: Sampled, body: Chat, served: Served) -> Json:
    """Part of a choice of /v1/chat/completions.

    body: the request, which decides about log-probs (nats) and token ids. served: names tokens.
    """
    return {
        "message": {"role": "assistant", "content": each.completion.text},
        "logprobs": {"content": _chat_logprobs(each, body, served)} if body.logprobs else None,
        # Left out unless requested: OpenAI's format has no such field.
        **({"token_ids": _tokens(each)[0]} if body.return_token_ids else {}),
    }


def completed(each: Sampled, body: Complete, served: Served) -> Json:
    """Part of a choice of /v1/completions.

    body: the request, which decides about log-probs (nats), prompt log-probs and token ids.
    """
    choice: Json = {
        "text": each.completion.text,
        "logprobs": None if body.logprobs is None else _text_logprobs(each, body, served),
    }
    if body.prompt_logprobs is not None:
        choice["prompt_logprobs"] = _prompt_logprobs(each, served)
    if body.return_token_ids:
        choice["token_ids"] = _tokens(each)[0]
        choice["prompt_token_ids"] = list(each.completion.prompt_ids or ())
    return choice


def response(kind: str, served: Served, sampled: Sequence[Sampled], parts: list[Json]) -> Json:
    """The response with all choices and the usage, in tokens.

    kind: OpenAI's name for the object.
    sampled: the completions, all of one prompt, which is counted once.
    parts: of each choice, all that depends on the route.
    """
    prompt_tokens = len(sampled[0].completion.prompt_ids or ())
    tokens = sum(len(each.completion.completion_ids or ()) for each in sampled)
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": served.name,
        "choices": [
            {"index": i, "finish_reason": each.completion.finish_reason, **part}
            for i, (each, part) in enumerate(zip(sampled, parts, strict=True))
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


def _chat_logprobs(each: Sampled, body: Chat, served: Served) -> list[Json]:
    """Log-probs of the sampled tokens in the format of /v1/chat/completions."""

    def entry(token: int, logprob: float) -> Json:
        text = _name(token, served, body.return_tokens_as_token_ids)
        return {"token": text, "logprob": logprob}

    content: list[Json] = [
        {**entry(token, logprob), "top_logprobs": []}
        for token, logprob in zip(*_tokens(each), strict=True)
    ]
    for known, scores in zip(content, each.scores, strict=False):
        ranked = islice(_ranked(scores, known["logprob"]), body.top_logprobs)
        known["top_logprobs"] = [entry(*pair) for pair in ranked]
    return content


def _text_logprobs(each: Sampled, body: Complete, served: Served) -> Json:
    """Log-probs of the sampled tokens in the format of /v1/completions: four parallel lists."""
    ids, logprobs = _tokens(each)

    def name(token: int) -> str:
        return _name(token, served, body.return_tokens_as_token_ids)

    def named(token: int, logprob: float, scores: Scores) -> Json:
        # The sampled token first, even if it is none of the likeliest.
        return {name(i): p for i, p in [(token, logprob), *_ranked(scores, logprob)]}

    names = list(map(name, ids))
    return {
        "tokens": names,
        "token_logprobs": logprobs,
        "top_logprobs": list(map(named, ids, logprobs, each.scores)) or None,
        # Offsets are in characters of the texts of the tokens before.
        "text_offset": [0, *accumulate(map(len, names))][: len(names)],
    }


def _prompt_logprobs(each: Sampled, served: Served) -> list[Json | None]:
    """Log-probs of the prompt's tokens by token id, None for the first."""

    def entries(scores: Scores) -> Json:
        return {
            str(token): {"logprob": max(value, LOWEST), "decoded_token": served.text_of(token)}
            for token, value in scores.items()
        }

    # Nothing comes before the first token, so it has no log-prob.
    return [None, *map(entries, each.prompt_scores)]


def _ranked(scores: Scores, sampled: float) -> Iterator[tuple[int, float]]:
    """The likeliest tokens, likeliest first, with their log-probs; the sampled one with its own."""
    # The first entry of the scores is that of the sampled token.
    own = next(iter(scores))
    for token, value in sorted(scores.items(), key=lambda pair: -pair[1]):
        # Rounding differs between the two computations; a client must find the same number twice.
        yield token, sampled if token == own else max(value, LOWEST)


def _masks(each: Sampled) -> list[list[int]] | None:
    """The ids that each token was drawn from; None where none was left out."""
    completion = each.completion
    if completion.sampling_mask is None:
        return None
    sizes, ids = unpacked_masks(completion.sampling_mask, np.array(completion.completion_ids))
    return [sorted(part.tolist()) for part in np.split(ids, sizes.cumsum()[:-1])]


def _tokens(each: Sampled) -> tuple[list[int], list[float]]:
    """Ids and log-probs (nats) of the sampled tokens, equally many."""
    completion = each.completion
    return list(completion.completion_ids or ()), list(completion.logprobs or ())


def _name(token: int, served: Served, as_id: bool | None) -> str:
    """Text of a token, or "token_id:ID", which is unambiguous where several tokens share a text."""
    return f"token_id:{token}" if as_id else served.text_of(token)
