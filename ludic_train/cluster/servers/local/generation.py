"""Routes that sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from aiohttp import web

from ludic_gym.errors import ConfigError, PromptTooLong
from ludic_gym.types import Message
from ludic_train.cluster.servers.local.responses import (
    SERVED,
    chatted,
    completed,
    generated,
    reply,
    response,
)
from ludic_train.cluster.servers.local.schemas import Chat, Complete, Generate, read
from ludic_train.cluster.servers.local.served_model import Served

# vLLM's default for a completion; a chat may fill the model's positions.
MAX_TOKENS = 16
# No tokenizer has longer tokens on average. A text that is far too long is not encoded, because
# that would block all other requests.
MOST_CHARACTERS = 256


async def generate(request: web.Request) -> web.Response:
    """POST /inference/v1/generate: token ids in; text, token ids, log-probs and version out.

    Raises ModelNotFound for another model's name, PromptTooLong, ConfigError for a bad request.
    """
    served, body = request.app[SERVED], read(await request.read(), Generate)
    served.require(body.model)
    params = body.sampling_params
    samplings = params.samplings(MAX_TOKENS)
    sampled = await served.sample(body.token_ids, samplings, top=params.logprobs)
    choices = [generated(each, with_logprobs=params.logprobs is not None) for each in sampled]
    return reply({"request_id": body.request_id, **response("generate", served, sampled, choices)})


async def complete(request: web.Request) -> web.Response:
    """POST /v1/completions: the continuation of a text or token ids.

    A text is encoded as it is, without the chat template.
    Raises ModelNotFound for another model's name, PromptTooLong, ConfigError for a bad request.
    """
    served, body = request.app[SERVED], read(await request.read(), Complete)
    served.require(body.model)
    samplings = body.samplings(MAX_TOKENS)
    prompt = body.prompt
    ids = _encoded(prompt, served) if isinstance(prompt, str) else prompt
    sampled = await served.sample(
        ids, samplings, top=body.logprobs, prompt_top=body.prompt_logprobs
    )
    choices = [completed(each, body, served) for each in sampled]
    return reply(response("text_completion", served, sampled, choices))


async def chat(request: web.Request) -> web.Response:
    """POST /v1/chat/completions: the next message of a dialog, or the rest of its last.

    Without a limit in the request, a completion may fill the model's positions.
    Raises ModelNotFound for another model's name, PromptTooLong, ConfigError for tools, and for
    a dialog that the chat template rejects.
    """
    served, body = request.app[SERVED], read(await request.read(), Chat)
    served.require(body.model)
    if body.tools:
        raise ConfigError(
            f"{len(body.tools)} tools were offered: the local engine reads no native tool "
            "calls; use a policy that calls tools in text"
        )
    ids = _rendered(body, served)
    # At least 1: a prompt that is too long gets the error for that, not one about max_tokens.
    room = max(1, served.client.max_positions - len(ids))
    samplings = body.samplings(body.max_completion_tokens or room)
    sampled = await served.sample(ids, samplings, top=body.top_logprobs)
    choices = [chatted(each, body, served) for each in sampled]
    whole = response("chat.completion", served, sampled, choices)
    return reply({**whole, "prompt_token_ids": ids} if body.return_token_ids else whole)


def _rendered(body: Chat, served: Served) -> Sequence[int]:
    """Token ids of the dialog. Raises ConfigError for one that the chat template cannot take."""
    messages = [_message(raw) for raw in body.messages]
    _check_length(sum(len(message["content"] or "") for message in messages), served)
    if not messages:
        raise ConfigError("messages=[]: a dialog has one message or more")
    # The two flags must agree with the last message, because `token_ids` decides from it alone.
    is_begun = messages[-1]["role"] == "assistant"
    if is_begun != bool(body.continue_final_message) or body.add_generation_prompt is is_begun:
        raise ConfigError(
            f"the last message is of {messages[-1]['role']!r}, but continue_final_message="
            f"{body.continue_final_message} and add_generation_prompt={body.add_generation_prompt}:"
            " an assistant's message is continued with true and false, a reply to any other begins"
            " with false and true"
        )
    try:
        return served.client.prompts.token_ids(messages)
    except (TypeError, UnicodeError, RecursionError) as error:
        # Errors of a template that gets data of another kind than it expects.
        raise ConfigError(f"the chat template fails on this dialog: {error}") from error


def _message(raw: Mapping[str, Any]) -> Message:
    """The message, text in parts joined. Raises ConfigError for one without a role or text."""
    role, content = raw.get("role"), raw.get("content")
    if isinstance(content, list):
        content = "".join(map(_part, content))
    if not isinstance(role, str) or not isinstance(content, str | None):
        raise ConfigError(f"a message has a role and content, both text, got {raw!r}"[:300])
    return cast(Message, {**raw, "role": role, "content": content})


def _part(part: object) -> str:
    """Text of a part of a message. Raises ConfigError for an image or any other part."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    raise ConfigError(f"a part of a message is {part!r:.200}, and only text can be read")


def _encoded(text: str, served: Served) -> list[int]:
    """Token ids of a text. Raises ConfigError for text that is not valid Unicode, PromptTooLong."""
    _check_length(len(text), served)
    try:
        ids: list[int] = served.tokenizer.encode(text)
    except (TypeError, UnicodeError) as error:
        raise ConfigError(f"prompt={text[:100]!r} is no text that can be encoded") from error
    return ids


def _check_length(num_characters: int, served: Served) -> None:
    """Raises PromptTooLong for a text that cannot fit the positions, before it is encoded."""
    limit = served.client.max_positions
    if num_characters > MOST_CHARACTERS * limit:
        raise PromptTooLong(
            f"a prompt of {num_characters} characters does not fit the model's {limit} positions, "
            "its maximum context length"
        )
