"""The request that probes a hosted model before a run, and learns what its server refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from ludic_gym.clients.openai import HostedChatClient
from ludic_gym.errors import ClientError, ConfigError, QuotaExhausted
from ludic_gym.types import Message, ModelCall, Sampling

QUESTION: Sequence[Message] = ({"role": "user", "content": "Reply with OK."},)
# A few more than a word: some servers have a minimum.
PROBE_TOKENS = 16
NAMED_MODELS = 5
# Statuses of servers that refuse a field of a request.
REFUSALS = (400, 422)
# In this order: of two that exclude each other, the first is left out.
DEFAULTS = {"top_p": 1.0, "seed": None, "temperature": 1.0}
# The refusals of servers that only stream.
_STREAMS_ONLY = re.compile(
    r"only supports? (the )?stream|stream(ing)? mode|non.?stream|stream.{0,20}\b(true|required)",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(r"[Uu]se ['\"`]?(\w+)['\"`]? instead")


async def probe(client: HostedChatClient, sampling: Sampling) -> ModelCall:
    """The account of one short request with the run's sampling parameters.

    A parameter that the server refuses by name is renamed as the refusal says, or left out if it
    has its default, and a server that only streams is asked for a stream; the request is then sent
    again, and `client.renamed` and `client.streams` have the change.
    Raises ConfigError for a request that no retry can mend, with the remedy: a closed port, a wrong
    key, an unknown model, a model without chat template. A server that is busy is waited for.
    """
    # With a seed, because every episode has one.
    short = replace(sampling, max_tokens=min(sampling.max_tokens, PROBE_TOKENS), seed=0)
    while True:
        try:
            completion = await client.complete(QUESTION, short)
        except ClientError as error:
            # Room for a thought: some servers refuse a limit that leaves none.
            if short.max_tokens < sampling.max_tokens and too_short(error):
                short = replace(short, max_tokens=sampling.max_tokens)
                continue
            if not client.streams and error.status in REFUSALS and _STREAMS_ONLY.search(str(error)):
                client.streams = True
                continue
            refused = refused_field(error, sampling)
            if refused is None or refused[0] in client.renamed:
                raise ConfigError(f"{error}{await _remedy(client, error)}") from error
            client.renamed[refused[0]] = refused[1]
        else:
            assert completion.call is not None
            return completion.call


def too_short(error: ClientError) -> bool:
    """True if the response refuses the value of a limit of tokens, and not the parameter.

    >>> too_short(ClientError("`max_tokens` must be greater than `budget_tokens`", status=400))
    True
    """
    text = str(error)
    names_limit = re.search(r"\bmax_(completion_|output_)?tokens\b", text) is not None
    return error.status in REFUSALS and names_limit and _OTHER_NAME.search(text) is None


def refused_field(error: ClientError, sampling: Sampling) -> tuple[str, str | None] | None:
    """The sampling parameter that a response refuses by name, and its new name or None.

    None if the response refuses something else.
    Raises ConfigError for a parameter with another value than its default, which leaving it out
    would change.

    >>> text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    >>> refused_field(ClientError(text, status=400), Sampling())
    ('max_tokens', 'max_completion_tokens')
    """
    text = str(error)
    if error.status not in REFUSALS:
        return None
    other = _OTHER_NAME.search(text)
    if other and re.search(r"\bmax_tokens\b", text):
        return "max_tokens", other[1]
    if "stream_options" in text:
        return "stream_options", None
    for name, default in DEFAULTS.items():
        if re.search(rf"\b{name}\b", text):
            value = getattr(sampling, name)
            if value != default:
                raise ConfigError(
                    f"{error}: the model takes no {name}={value}; leave it out, with "
                    f"--param {name}=none"
                )
            return name, None
    return None


async def _remedy(client: HostedChatClient, error: ClientError) -> str:
    """The end of the message: a colon and what to do, or nothing."""
    # It has its own.
    if isinstance(error, QuotaExhausted):
        return ""
    key = client.api_key_env
    # The second is Gemini's, with status 400.
    if error.status in (401, 403) or "API key not valid" in str(error):
        if os.environ.get(key):
            return f": set another key in {key}, or check what it may use"
        return f": no key was sent, because {key} is not set: export {key}=..."
    if error.status == 404:
        try:
            names = await client.models()
        except ClientError:
            return ": check the address, which usually ends in /v1 (Anthropic's does not)"
        name = await client.model()
        if name in names:
            return ": the server lists this model, but not for chat requests"
        near = get_close_matches(name, names, n=NAMED_MODELS, cutoff=0.3) or names[:NAMED_MODELS]
        more = "" if len(near) == len(names) else f" and {len(names) - len(near)} more"
        return f": the server has no model {name!r}, but {', '.join(near) or 'none'}{more}"
    if "chat template" in str(error).lower() or "chat_template" in str(error).lower():
        return (
            ": the model has no chat template: serve an instruct model, or start vLLM with "
            "--chat-template FILE"
        )
    return ""
